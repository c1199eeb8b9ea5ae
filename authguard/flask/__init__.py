"""
authguard for Flask: limits before every credential, in an app's own views or ready-made ones.

::

    guard = AuthGuard(app)                                  # reads AUTHGUARD_… from app.config

    @app.post("/login")
    @guard.protect("login", account="username")             # reserved before the view runs
    def login():
        if right(request.form["username"], request.form["password"]):
            current_attempt.succeed()                       # anything else stays a counted failure
"""

from authguard.flask import signals
from authguard.flask.attempts import current_attempt
from authguard.flask.extension import AuthGuard
from authguard.flask.refusals import NoVerdict, Refused

__all__ = ["AuthGuard", "NoVerdict", "Refused", "current_attempt", "signals"]
