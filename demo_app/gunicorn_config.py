"""How gunicorn runs the demo; read by gunicorn itself, which skips names it doesn't know yet."""

from __future__ import annotations

from demo_app.settings import Settings

_settings = Settings.from_environment()

workers = _settings.workers
worker_class = "gthread"
#: Requests a worker handles at a time; further connections wait their turn in the backlog.
threads = 64
backlog = 1024
#: Seconds for requests under way when the end is asked for.
graceful_timeout = 10
#: Nobody: a forwarding header is for authguard to believe (--trusted-proxy) or not.
forwarded_allow_ips = ""
#: Its control socket would be one file in the home directory for all demos at once.
control_socket_disable = True
#: It tells of every start and end; the demo has told that itself.
loglevel = "error"
