"""``python -m demo_app``: a real Valkey, accounts on SQLite, and a sign-in to attack."""

from __future__ import annotations

import shlex
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import click
from sqlalchemy.exc import SQLAlchemyError

from authguard import ConfigurationError, Passwords, StoreUnavailable
from authguard.testing import embedded_valkey
from demo_app.accounts import SqlAccounts
from demo_app.app import create_app
from demo_app.database import ForeignDatabaseError
from demo_app.greeting import greeting
from demo_app.server import StartError, WebServer, listen, url_of
from demo_app.settings import Settings


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5000,
    show_default=True,
    help="Port to listen on; 0 picks a free one and prints it.",
)
@click.option("--valkey-url", metavar="URL", help="A Valkey of your own (default: embedded).")
@click.option(
    "--policy",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Limits in TOML (default: the package's profile).",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="CIDR",
    help="A proxy whose X-Forwarded-For is believed; may be given more than once.",
)
@click.option("--database", metavar="FILE", help="SQLite file (default: a fresh temporary one).")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Web worker processes.",
)
@click.option(
    "--deadline",
    type=click.IntRange(1, 60_000),
    default=500,
    show_default=True,
    metavar="MS",
    help="Deadline of one decision, in milliseconds.",
)
def main(
    *,
    host: str,
    port: int,
    valkey_url: str | None,
    policy: str | None,
    trusted_proxies: tuple[str, ...],
    database: str | None,
    workers: int,
    deadline: int,
) -> None:
    """Run authguard's demo until SIGTERM or Ctrl-C."""
    server = WebServer()  # first of all, so that a signal finds its handler
    try:
        with ExitStack() as stack:
            listener = stack.enter_context(listen(host, port))
            folder = Path(  # nobody else's to look into
                stack.enter_context(tempfile.TemporaryDirectory(prefix="authguard-demo-"))
            )
            if database is None:
                database = str(folder / "accounts.sqlite")
            pid = None
            if valkey_url is None:
                valkey = stack.enter_context(embedded_valkey())
                valkey_url, pid = valkey.url, valkey.pid
            settings = Settings(
                store_url=valkey_url,
                database=database,
                policy=policy,
                trusted_proxies=trusted_proxies,
                deadline_ms=deadline,
                workers=workers,
                base_url=url_of(listener),
            )
            create_app(settings)  # here first: a wrong setting is told in one line
            with SqlAccounts(database) as accounts:
                accounts.create(Passwords())

            operate = folder / "operate.env"
            operate.touch(mode=0o600)
            operate.write_text(settings.shell_lines())
            stack.callback(server.close)
            server.start(listener, settings)
            if not server.stopping:
                text = greeting(
                    settings.base_url,
                    store=f"embedded, process {pid}" if pid else _without_password(valkey_url),
                    store_pid=pid,
                    default_policy=policy is None,
                    operate=shlex.quote(str(operate)),
                    flask=shlex.quote(_flask_command()),
                )
                click.echo(f"{text}\nready {settings.base_url}")
                sys.stdout.flush()
            status = server.wait()
    except (StartError, ConfigurationError, StoreUnavailable) as error:
        _fail(str(error))
    except ForeignDatabaseError as error:
        _fail(f"can't use the database {database}: {error}; name a new file")
    except SQLAlchemyError as error:
        _fail(f"can't use the database {database}: {getattr(error, 'orig', error)}")
    sys.exit(status)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"


def _flask_command() -> str:
    """The flask beside this Python, as it is called from here."""
    command = Path(sys.executable).with_name("flask")
    here = Path.cwd()
    return str(command.relative_to(here) if command.is_relative_to(here) else command)


def _fail(message: str) -> None:
    click.echo(f"demo_app: {message}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m demo_app")
