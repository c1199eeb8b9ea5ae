"""``flask authguard …``: the same commands, with the app's guard, names and accounts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from flask import Flask

from authguard.flask import AuthGuard, signals
from authguard.identity import normalise_case_sensitive
from tests.flask.conftest import ALL_OF_S, HOME, bare_app, site, site_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result

    from tests.conftest import Clock
    from tests.flask.conftest import Site

__all__ = ["bare_app", "site", "site_factory"]

ROOT = Path(__file__).parents[2]
FAILED = "Dec 10 06:00:01 gate sshd[1]: Failed password for vera from 192.0.2.1 port 4 ssh2\n"


def operate(app: Flask, *arguments: str) -> Result:
    """Run ``flask authguard`` in this process."""
    return app.test_cli_runner().invoke(args=["authguard", *arguments])


def told(app: Flask, command: str, *arguments: str) -> dict[str, Any]:
    """Run a command that must end with status 0, and give its JSON."""
    result = operate(app, command, "--json", *arguments)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.fixture
def members_site(site_factory: Callable[..., Site], clock: Clock) -> Site:
    """Give a site on set-up S whose accounts tell who must be recovered."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)


@pytest.fixture
def acts() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Listen to what operators did."""
    heard: list[tuple[str, dict[str, Any]]] = []

    def acted(_app: Flask, **payload: Any) -> None:
        heard.append(("acted", payload))

    def unlocked(_app: Flask, **payload: Any) -> None:
        heard.append(("unlocked", payload))

    with (
        signals.operator_acted.connected_to(acted),
        signals.account_unlocked.connected_to(unlocked),
    ):
        yield heard


def test_any_name_of_the_account_will_do(site: Site) -> None:
    """Locked by one name, seen and unlocked by another: the app's own look-up is asked."""
    assert site.statuses(6) == [401] * 5 + [429]
    report = told(site.app, "status", "login", " Vera@Example.test")
    assert (report["account"], report["locked"], report["failures"]) == ("key-1", True, 5)
    result = operate(site.app, "unlock", "--account", "VERA")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "login: 5 places freed in its logs, 1 lock ended\n"
    assert site.login("vera", "right vera").status_code == 200


def test_the_apps_normaliser_and_resolve_count(bare_app: Flask) -> None:
    """Names go the way of a protected view's: the app's normaliser, then its resolve."""
    auth = AuthGuard(bare_app, normalise=normalise_case_sensitive, resolve={"Vera": "key-1"}.get)

    @bare_app.post("/login")
    @auth.protect("login", account="name")
    def view() -> str:
        return "wrong"

    browser = bare_app.test_client()
    for name in ("Vera", "Vera", "vera"):
        assert browser.post("/login", data={"name": name}).status_code == 200
    assert told(bare_app, "status", "login", "Vera")["failures"] == 2
    result = operate(bare_app, "status", "login", "vera", "--json")
    assert json.loads(result.stdout)["failures"] == 1
    assert (
        result.stderr
        == "Note: nobody has that name: it counts by its spelling; --exact takes a key as it is\n"
    )
    with bare_app.app_context():
        auth.guard.close()


def test_the_apps_clock_and_store_are_used(site: Site, clock: Clock) -> None:
    """Times are those of the app's guard: the end of a lock moves with its clock."""
    site.statuses(5)
    report = told(site.app, "status", "login", "vera")
    assert (report["at"], report["locked_until"], report["retry_after"]) == (
        "2027-01-15T08:00:00.000Z",
        "2027-01-15T08:15:00.000Z",
        900,
    )
    clock.advance(899_000)
    assert told(site.app, "status", "login", "vera")["retry_after"] == 1
    clock.advance(1_000)
    assert told(site.app, "status", "login", "vera")["locked"] is False


def test_required_recovery_is_told_and_lifted(members_site: Site) -> None:
    """The accounts tell it; an unlock lifts it for the actions that are named, or for all."""
    app, people = members_site.app, members_site.people
    for action in ("login", "otp.verify"):
        people.require_recovery("key-1", action)
    report = told(app, "status", "login", "vera")
    assert report["recovery_required"] is True
    assert (report["refused_by"], report["retry_after"]) == (["recovery"], None)
    members_site.guard.block(account="key-1", for_ms=60_000)
    report = told(app, "status", "login", "vera")
    assert (report["refused_by"], report["retry_after"]) == (["block", "recovery"], None)
    members_site.guard.unblock(account="key-1")
    assert "required: a new password" in operate(app, "status", "login", "vera").stdout
    assert told(app, "status", "login", "omar")["recovery_required"] is False
    assert told(app, "status", "login", "ghost")["recovery_required"] is None
    assert told(app, "status", "login", "--client", HOME)["recovery_required"] is None
    result = operate(app, "unlock", "login", "--account", "vera")
    assert result.stdout == "login: recovery no longer required\n"
    assert people.by_key["key-1"].recovery_required == {"otp.verify"}
    assert members_site.login("vera", "right vera").status_code == 200
    assert operate(app, "unlock", "--account", "vera").exit_code == 0
    assert people.by_key["key-1"].recovery_required == set()
    assert operate(app, "unlock", "--account", "vera").exit_code == 3
    assert operate(app, "unlock", "--account", "ghost").exit_code == 3


def test_accounts_that_do_not_tell_are_null(site: Site) -> None:
    """Without a notifier there is no recovery, and null says that nobody knows."""
    assert told(site.app, "status", "login", "vera")["recovery_required"] is None


def test_each_act_is_a_signal(
    members_site: Site, acts: list[tuple[str, dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    """One for each action that is named, None for all; one for each lock; pseudonyms alone."""
    members_site.statuses(5)
    app, vera = members_site.app, members_site.guard.subject("key-1")
    operate(app, "unlock", "login", "otp.verify", "--account", "vera", "--by", "anna")
    operate(app, "block", "--client", HOME, "--by", "ben", "--reason", "scan")
    operate(app, "unlock", "--account", "omar")
    plain = {"limit": None, "to": None}  # of overrides alone
    unlock = {"act": "unlock", "reason": None, "by": "anna", "subject": vera, **plain}
    (*first, (name, block)) = acts
    assert first == [
        ("acted", {**unlock, "action": "login"}),
        ("acted", {**unlock, "action": "otp.verify"}),
        ("unlocked", {"action": "login", "cause": "operator", "subject": vera}),
    ]
    assert len(block.pop("subject")) == len(vera)
    assert (name, block) == (
        "acted",
        {"act": "block", "action": None, "reason": "scan", "by": "ben", **plain},
    )
    assert "login: unlocked by operator (subject " in caplog.text
    for word in ("scan", HOME, "key-1"):
        assert word not in caplog.text


def test_a_client_that_was_locked_is_no_account(
    site_factory: Callable[..., Site], acts: list[tuple[str, dict[str, Any]]]
) -> None:
    """A client's lock ends with a signal that names no account."""
    site = site_factory(
        limits=[
            {"name": "account", "by": ["account"], "sliding_log": "9/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "2/1h", "lockout": "1h"},
        ]
    )
    site.statuses(2)
    assert operate(site.app, "unlock", "--client", HOME).exit_code == 0
    assert ("unlocked", {"action": "login", "cause": "operator", "subject": None}) in acts


def test_an_app_knows_where_to_look(site: Site) -> None:
    """Operators' commands take no store and no policy here; replay takes both as ever."""
    for command in ("status", "unlock", "block"):
        text = operate(site.app, command, "--help").stdout
        assert "--store-url" not in text
        assert "--policy" not in text
        assert "Exit status:" in text
        assert "3  there was nothing to free" in text or command != "unlock"
    result = operate(site.app, "status", "login", "vera", "--store-url", "valkey://x")
    assert result.exit_code == 2
    assert "No such option" in result.output


def test_replay_is_there_too(site: Site, tmp_path: Path) -> None:
    """One set of commands: a log is replayed on the server that is named."""
    log = tmp_path / "auth.log"
    log.write_text(FAILED)
    url = site.app.config["AUTHGUARD_STORE_URL"]
    report = told(site.app, "replay", str(log), "--store-url", url)
    assert report["attempts"] == 1


def test_wrong_use_is_status_2(site: Site) -> None:
    """The same lines and statuses as without an app."""
    for arguments, words in (
        (("unlock",), "name somebody"),
        (("unlock", "nothing", "--account", "vera"), "AG009 action 'nothing'"),
        (("block", "--client", "junk"), "junk is no IP address"),
        (("nothing",), "No such command"),
    ):
        result = operate(site.app, *arguments)
        assert result.exit_code == 2
        assert words in result.stderr


def test_a_store_that_is_away_is_status_1(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, without a traceback and without the store's address, which the app knows."""
    site.guard.close()
    dead = "valkey://:tell-nobody@127.0.0.1:1/0"
    monkeypatch.setitem(site.app.config, "AUTHGUARD_STORE_URL", dead)
    app = Flask("another")
    app.config.update(site.app.config, AUTHGUARD_STORE_URL=dead)
    AuthGuard(app)
    result = operate(app, "unlock", "--account", "vera")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: the store gave no clear answer (connection)" in result.stderr
    assert "tell-nobody" not in result.stderr


def test_an_apps_own_group_of_that_name_stays(bare_app: Flask) -> None:
    """Commands that the app has made first are left alone."""
    own = click.Group("authguard")
    bare_app.cli.add_command(own)
    AuthGuard(bare_app)
    assert bare_app.cli.commands["authguard"] is own


def test_an_apps_start_does_not_wait_for_tables() -> None:
    """Neither rich nor the commands are loaded until one of them is called."""
    code = (
        "import sys; from flask import Flask; from authguard.flask import AuthGuard;"
        "app = Flask('an_app');"
        "app.config.update(AUTHGUARD_STORE_URL='valkey://127.0.0.1', AUTHGUARD_SECRET='0123456789'"
        "+ 'abcdef' * 5);"
        "AuthGuard(app); print([name for name in sys.modules if name.partition('.')[0] == 'rich'"
        " or name == 'authguard.cli'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_without_rich_the_mend_is_told(bare_app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rich is missing, status 2 names the extra; the app itself needs none of it."""
    for name in [name for name in sys.modules if name in ("authguard.cli", "authguard._operators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "authguard._terminal", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    AuthGuard(bare_app)
    result = operate(bare_app, "status", "login", "vera")
    assert result.exit_code == 2
    assert "needs rich, which is not installed; pip install 'authguard[cli]'" in result.stderr


def test_the_apps_lists_are_told(site_factory: Callable[..., Site]) -> None:
    """A client on the denylist is refused by it, without an end; one on the allowlist is not."""
    site = site_factory(AUTHGUARD_DENYLIST=["203.0.113.0/24"], AUTHGUARD_ALLOWLIST=["192.0.2.1"])
    report = told(site.app, "status", "login", "vera", "--client", HOME)
    assert (report["refused_by"], report["retry_after"]) == (["denylist"], None)
    for number in range(21):
        site.login(f"user-{number}", client="192.0.2.1")
    report = told(site.app, "status", "login", "--client", "192.0.2.1")
    assert report["refused_by"] == []


def test_the_flask_command_finds_them(valkey_url: str, tmp_path: Path) -> None:
    """``flask authguard status`` in a shell, with nothing but FLASK_APP."""
    (tmp_path / "app.py").write_text(
        "from flask import Flask\n"
        "from authguard.flask import AuthGuard\n"
        "app = Flask(__name__)\n"
        f"app.config['AUTHGUARD_STORE_URL'] = {valkey_url!r}\n"
        "app.config['AUTHGUARD_SECRET'] = 'of the flask command: 0123456789abcdef'\n"
        "app.config['AUTHGUARD_DEADLINE_MS'] = 10_000\n"
        "AuthGuard(app)\n"
    )
    flask = [sys.executable, "-m", "flask", "--app", "app"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*flask, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    result = run("authguard", "status", "login", "vera", "--json")
    assert (result.returncode, json.loads(result.stdout)["failures"]) == (0, 0)
    assert "Look after sign-in" in run("--help").stdout
    listed = run("authguard", "--help").stdout
    assert all(name in listed for name in ("status", "unlock", "block", "replay"))
