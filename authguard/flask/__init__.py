"""
authguard for Flask: limits before every credential, in an app's own views or ready-made ones.

::

    guard = AuthGuard(app)                                  # reads AUTHGUARD_… from app.config

    @app.post("/login")
    @guard.protect("login", account="username")             # reserved before the view runs
    def login():
        if right(request.form["username"], request.form["password"]):
            current_attempt.succeed()                       # anything else stays a counted failure

    @app.get("/api/report")
    @guard.limit("api", by=lambda: g.api_key)               # every request counts
    def report():
        ...
"""

try:
    import blinker  # noqa: F401 (looked for, so that what is missing is named with its mend)
    import flask  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"authguard.flask needs {missing.name}: pip install 'authguard[flask]'", name=missing.name
    ) from missing

from authguard.flask import signals
from authguard.flask.api import current_limit
from authguard.flask.attempts import current_attempt
from authguard.flask.extension import AuthGuard
from authguard.flask.refusals import NoVerdict, Refused, Shed

__all__ = [
    "AuthGuard",
    "NoVerdict",
    "Refused",
    "Shed",
    "current_attempt",
    "current_limit",
    "signals",
]
