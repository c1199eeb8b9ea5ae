"""What an app's start logs of the store and the settings: what ``check`` would warn of, once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from flask import Flask

from authguard.errors import ConfigurationError
from authguard.flask import AuthGuard
from tests.ops.test_check import DRAWN, KEPT, plain, terminal_on, until
from tests.stores.conftest import SANE_S, stopped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from authguard.testing import EmbeddedValkey
    from tests.ops.conftest import Terminal

__all__ = ["terminal_on"]

#: An app as a file, which warns of its proxies and no more.
APP: Final = """
import os
from flask import Flask
from authguard.flask import AuthGuard
app = Flask(__name__)
app.config["AUTHGUARD_STORE_URL"] = os.environ["AUTHGUARD_STORE_URL"]
app.config["AUTHGUARD_SECRET"] = os.environ["AUTHGUARD_SECRET"]
app.config["AUTHGUARD_DEADLINE_MS"] = 1_000
AuthGuard(app)
"""


@pytest.fixture
def started(caplog: pytest.LogCaptureFixture) -> Callable[..., list[tuple[str, str]]]:
    """Start an app, and give what it logged: level and text."""

    def start(url: str, *, check_at_start: bool = True, **config: Any) -> list[tuple[str, str]]:
        caplog.clear()
        app = Flask("an_app")
        settings: dict[str, Any] = {"STORE_URL": url, "SECRET": DRAWN, "TRUSTED_PROXIES": []}
        settings = {"DEADLINE_MS": 1_000} | settings
        app.config.update({f"AUTHGUARD_{name}": value for name, value in settings.items()})
        app.config.update(config)
        auth = AuthGuard(app, check_at_start=check_at_start)
        auth.init_app(app)
        with app.app_context():
            auth.guard.close()
        assert all(record.name == "authguard" for record in caplog.records)
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    with caplog.at_level(logging.INFO, "authguard"):
        return start


def test_a_well_kept_server_is_silence(
    terminal_on: Callable[..., Terminal], started: Callable[..., list[tuple[str, str]]]
) -> None:
    """Nothing to mend, nothing logged; and nothing written."""
    terminal = terminal_on(**KEPT)
    assert started(terminal.env["AUTHGUARD_STORE_URL"]) == []
    with plain(terminal) as client:
        assert client.dbsize() == 0


def test_no_connection_is_left_to_be_inherited(terminal_on: Callable[..., Terminal]) -> None:
    """What a start opens it closes: a server that forks afterwards shares none of it."""
    terminal = terminal_on(**KEPT)
    app = Flask("an_app")
    url = terminal.env["AUTHGUARD_STORE_URL"]
    app.config.update(AUTHGUARD_STORE_URL=url, AUTHGUARD_SECRET=DRAWN)
    app.config.update(AUTHGUARD_DEADLINE_MS=1_000, AUTHGUARD_TRUSTED_PROXIES=[])
    AuthGuard(app)
    with plain(terminal) as client:
        assert client.info("stats")["total_connections_received"] > 1
        until(lambda: len(client.client_list()) == 1)


def test_what_is_wrong_is_logged_once_with_its_code(
    terminal_on: Callable[..., Terminal], started: Callable[..., list[tuple[str, str]]]
) -> None:
    """Each warning and each error by code, level and mend; a second init_app adds nothing."""
    terminal = terminal_on(maxmemory_policy="allkeys-lru")
    url = terminal.env["AUTHGUARD_STORE_URL"]
    logged = started(url, AUTHGUARD_DEADLINE_MS=5_000, AUTHGUARD_TRUSTED_PROXIES=None)
    assert [(level, text[:6]) for level, text in logged] == [
        ("ERROR", "AG061 "),
        ("WARNING", "AG064 "),
        ("WARNING", "AG074 "),
        ("WARNING", "AG075 "),
    ]
    assert logged[1][1].startswith("AG064 maxmemory-policy allkeys-lru: as soon as maxmemory")
    assert "; CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE" in logged[1][1]


def test_what_the_policies_warn_of_is_not_said_twice(
    terminal_on: Callable[..., Terminal], started: Callable[..., list[tuple[str, str]]]
) -> None:
    """The guard logs AG040 to AG042 itself, with or without the look."""
    url = terminal_on(**KEPT).env["AUTHGUARD_STORE_URL"]
    limit = {"name": "client", "by": ["client"], "sliding_log": "5/15m"}
    policy = {"login": {"limits": [limit]}}
    (warning,) = started(url, AUTHGUARD_POLICY=policy)
    assert warning[1].startswith("AG040 login: ")
    assert started(url, AUTHGUARD_POLICY=policy, check_at_start=False) == [warning]


def test_what_one_permission_hides_is_one_line(
    terminal_on: Callable[..., Terminal], started: Callable[..., list[tuple[str, str]]]
) -> None:
    """A user who may decide and not look: all that can't be told, by codes, in one warning."""
    terminal = terminal_on(**KEPT)
    with plain(terminal) as client:
        rules = "on >pw ~rl:v1:* +eval +evalsha +get +set +del +pttl +time"
        client.execute_command("ACL", "SETUSER", "counter", *rules.split())
    url = terminal.env["AUTHGUARD_STORE_URL"].replace("//", "//counter:pw@")
    ((level, text),) = started(url)
    assert level == "WARNING"
    assert text.startswith("AG060, AG061, AG062, AG063, AG064, AG069, AG070, AG071 can't tell: ")
    assert "pw" not in text


def test_a_store_that_is_away_is_one_warning(
    own_valkey: EmbeddedValkey, started: Callable[..., list[tuple[str, str]]]
) -> None:
    """The app starts all the same, within one deadline: refused at once, or hanging."""
    ((level, text),) = started("valkey://:tell-nobody@127.0.0.1:1/0")
    assert (level, text[:6]) == ("WARNING", "AG076 ")
    assert "(connection)" in text
    assert "tell-nobody" not in text
    with stopped(own_valkey):
        begun = time.monotonic()
        ((_, text),) = started(own_valkey.url, AUTHGUARD_DEADLINE_MS=300)
        assert time.monotonic() - begun < SANE_S / 2  # sane; one deadline is 0.3 s
    assert "(timeout)" in text


def test_an_app_under_test_is_left_alone(started: Callable[..., list[tuple[str, str]]]) -> None:
    """TESTING, or check_at_start=False: the store isn't asked, nothing is logged."""
    assert started("valkey://127.0.0.1:1", TESTING=True) == []
    assert started("valkey://127.0.0.1:1", check_at_start=False) == []


def test_the_argument_is_a_switch() -> None:
    """Anything but True and False stops the start with its code."""
    with pytest.raises(ConfigurationError, match=r"AG005 AuthGuard\(check_at_start=…\)"):
        AuthGuard(check_at_start="no")  # type: ignore[arg-type]


def test_the_log_is_the_only_trace(
    terminal_on: Callable[..., Terminal], started: Callable[..., list[tuple[str, str]]]
) -> None:
    """A finding of the start is no exception, whatever it is: scripts that can't run, too."""
    url = terminal_on(**KEPT, rename_command="EVAL ''").env["AUTHGUARD_STORE_URL"]
    ((level, text),) = started(url)
    assert (level, text[:6]) == ("ERROR", "AG066 ")


def test_the_flask_command_looks_only_where_it_serves(
    terminal_on: Callable[..., Terminal], tmp_path: Path
) -> None:
    """``flask authguard …`` and ``flask routes`` print what they are asked for, and no more."""
    (tmp_path / "app.py").write_text(APP)
    env = {**os.environ, **terminal_on(**KEPT).env, "FLASK_APP": "app"}
    told = {}
    for command in ("authguard status login vera --json", "routes"):
        done = subprocess.run(
            [sys.executable, "-m", "flask", *command.split()],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        told[command] = done.stderr
    assert told == dict.fromkeys(told, "")
    serving = [sys.executable, "-c", "import app"]  # as gunicorn does
    done = subprocess.run(
        serving, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith("AG074 AUTHGUARD_TRUSTED_PROXIES is not set")
    assert done.stderr.count("\n") == 1
