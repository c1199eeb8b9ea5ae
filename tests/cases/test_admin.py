"""Operators: what they unlock is open, what they block stays shut, what they see is so."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from authguard.flask import signals
from tests.cases.conftest import add_door
from tests.demo.conftest import start_demo
from tests.flask.conftest import ALL_OF_S, HOME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result

    from tests.conftest import Clock
    from tests.demo.conftest import Demo
    from tests.flask.conftest import Site

__all__ = ["start_demo"]

ROOT = Path(__file__).parents[2]
OTHER = "198.51.100.7"
SECOND = 1_000


def operate(site: Site, *arguments: str) -> Result:
    """Run ``flask authguard`` in this process."""
    return site.app.test_cli_runner().invoke(args=["authguard", *arguments])


def status(site: Site, action: str = "login", who: str = "vera") -> dict[str, Any]:
    """Ask how an account stands."""
    result = operate(site, "status", action, who, "--json")
    assert result.exit_code == 0
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Clock) -> Site:
    """Give a site that sends codes and links, on set-up S, whose clock a test moves by hand."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)


@pytest.fixture
def events() -> Iterator[dict[str, int]]:
    """Count locks, unlocks and refusals as the app is told of them."""
    told = {"account_locked": 0, "account_unlocked": 0, "attempt_refused": 0}
    listeners = []
    for name in told:

        def listen(_app: object, name: str = name, **_payload: Any) -> None:
            told[name] += 1

        getattr(signals, name).connect(listen)
        listeners.append((getattr(signals, name), listen))
    yield told
    for signal, listen in listeners:
        signal.disconnect(listen)


def locking(lockout: str, log: str = "5/300s") -> dict[str, Any]:
    """Give a policy of one limit by account, and one by client."""
    return {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": log, "lockout": lockout},
            {"name": "client", "by": ["client"], "sliding_log": "99/300s"},
        ]
    }


def test_each_policys_own_lock_time_is_used(
    site_factory: Callable[..., Site], clock: Clock
) -> None:
    """B110: login locks 120 s and codes 300 s in one app, to the second, and status says so."""
    policies = {"login": locking("120s"), "otp": {"verify": locking("300s")}}
    site = site_factory(clock=clock, blueprint=False, AUTHGUARD_POLICY=policies)
    doors = {
        "login": add_door(site, "/password", "login"),
        "otp.verify": add_door(site, "/code", "otp.verify"),
    }
    for door in doors.values():
        assert [door.knock("vera") for _ in range(6)] == [401] * 5 + [429]
    waits = {action: status(site, action)["retry_after"] for action in doors}
    assert waits == {"login": 120, "otp.verify": 300}
    clock.advance(119 * SECOND)
    assert [door.knock("vera", "right vera") for door in doors.values()] == [429, 429]
    clock.advance(1 * SECOND)
    assert [door.knock("vera", "right vera") for door in doors.values()] == [200, 429]
    clock.advance(179 * SECOND)
    assert doors["otp.verify"].knock("vera", "right vera") == 429
    clock.advance(1 * SECOND)
    assert doors["otp.verify"].knock("vera", "right vera") == 200


def test_everybody_says_not_locked_once_the_end_has_passed(post_site: Site, clock: Clock) -> None:
    """B111: 0.1 s after it login, reset, code, unlock link, status and CLI agree; before, too."""
    site = post_site
    site.statuses(5)
    link = site.messages("unlock")[0].token
    clock.advance(900 * SECOND - 100)
    assert site.login("vera", "right vera").status_code == 429
    assert status(site)["locked"] is True
    clock.advance(200)
    before = status(site)
    assert (before["locked"], before["locked_until"], before["retry_after"]) == (False, None, None)
    result = operate(site, "unlock", "login", "--account", "vera")
    assert (result.exit_code, result.stdout) == (
        3,
        "nothing to free: no count, lock or block by account\n",
    )
    told: list[object] = []
    with signals.account_unlocked.connected_to(lambda _app, **payload: told.append(payload)):
        assert site.post("/auth/unlock", json={"token": link}).status_code == 200
        assert told == []  # there was no lock any more
    challenge = site.send_code().json["challenge"]
    code = site.messages("code")[0].code
    assert site.verify(challenge, code).status_code == 200
    assert site.login("vera", "right vera").status_code == 200
    assert site.post("/auth/password/forgot", json={"identifier": "vera"}).status_code == 202
    body = {"token": site.messages("reset")[0].token, "password": "a new password"}
    assert site.post("/auth/password/reset", json=body).status_code == 200
    assert site.login("vera", "a new password").status_code == 200


@pytest.mark.parametrize("how", ["success", "operator", "reset"])
def test_nothing_of_a_cleared_record_comes_back(
    site_factory: Callable[..., Site], clock: Clock, how: str
) -> None:
    """B112: cleared at 4 s by success, by CLI or by reset, fresh failures at 5 s last to 15 s."""
    policies = {**ALL_OF_S, "login": locking("60s", log="5/10s")}
    site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=policies)
    password = "right vera"
    site.post("/auth/password/forgot", json={"identifier": "vera"})
    link = site.messages("reset")[0].token
    site.statuses(3)
    assert site.used() == 3
    clock.advance(4 * SECOND)
    if how == "success":
        assert site.login("vera", password).status_code == 200
    elif how == "operator":
        assert operate(site, "unlock", "login", "--account", "vera").exit_code == 0
    else:
        password = "a new password"
        body = {"token": link, "password": password}
        assert site.post("/auth/password/reset", json=body).status_code == 200
    assert site.used() == 0
    clock.advance(1 * SECOND)
    site.statuses(2)
    clock.advance(5_500)
    assert site.used() == status(site)["failures"] == 2
    clock.advance(4_600)
    assert site.used() == status(site)["failures"] == 0


def shell(line: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line as a person would type it, with this Python's commands."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", line],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_an_unlock_holds_on_every_worker_at_once(start_demo: Callable[..., Demo]) -> None:
    """B139: four gunicorn workers; after the command returns the next eight sign-ins are 200."""
    demo = start_demo("--workers", "4", "--trusted-proxy", "127.0.0.1/32", "--deadline", "10000")
    guesses = [
        demo.visitor(f"198.51.100.{at // 4}").login("vera", "a guess").status for at in range(11)
    ]
    assert guesses == [401] * 10 + [429]
    right = ("vera@example.test", "correct horse vera")
    assert demo.visitor("192.0.2.1").login(*right).status == 429
    found = re.search(r"^ +\. (.*operate\.env.*)$", demo.greeting, re.MULTILINE)
    assert found is not None
    settings = shlex.join(shlex.split(found[1]))
    flask = shlex.join([sys.executable, "-m", "flask"])
    command = f". {settings}; {flask} authguard unlock --account '+1 415 555 0101' --reason rang"
    done = shell(command, ROOT)
    assert (done.returncode, done.stdout) == (
        0,
        "login: 30 places freed in its logs, 1 lock ended\nafresh from every client: login: pair\n",
    )
    assert demo.visitor("198.51.100.0").login(*right).status == 200
    assert [demo.visitor("192.0.2.1").login(*right).status for _ in range(8)] == [200] * 8
    seen = shell(f". {settings}; {flask} authguard status login vera --json", ROOT)
    report = json.loads(seen.stdout)
    assert (report["locked"], report["acts"][0]["reason"]) == (False, "rang")


def test_unlock_says_what_it_found(post_site: Site) -> None:
    """B140: a login lock, its count and a lock on codes are named; nothing is status 3."""
    site = post_site
    challenge = site.send_code().json["challenge"]
    site.statuses(5)
    assert [site.verify(challenge, "00000000x").status_code for _ in range(5)] == [401] * 5
    result = operate(site, "unlock", "--account", "vera")
    assert result.exit_code == 0
    assert "login: 5 places freed in its logs, 1 lock ended\n" in result.stdout
    assert "otp.verify: 5 places freed in its logs, 1 lock ended\n" in result.stdout
    assert "otp.send: " in result.stdout
    again = operate(site, "unlock", "--account", "vera")
    assert (again.exit_code, again.stdout.startswith("nothing to free")) == (3, True)


def test_status_tells_all_from_the_first_failure_on(site: Site, clock: Clock) -> None:
    """B142: at 0, 1 and 5 failures and after the lock the same fields, each with its value."""
    fields = ("failures", "remaining", "last_failure", "locked", "locked_until", "retry_after")
    start, end = "2027-01-15T08:00:00.000Z", "2027-01-15T08:15:00.000Z"
    reports = [status(site)]
    site.statuses(1)
    reports.append(status(site))
    site.statuses(4)
    reports.append(status(site))
    clock.advance(900 * SECOND)
    reports.append(status(site))
    assert len({tuple(report) for report in reports}) == 1
    assert [tuple(report[field] for field in fields) for report in reports] == [
        (0, 5, None, False, None, None),
        (1, 4, start, False, None, None),
        (5, 0, start, True, end, 900),
        (0, 5, None, False, None, None),
    ]


@pytest.mark.parametrize(
    ("guesser", "named"),
    [
        ("2001:db8:1:2::1", "2001:DB8:1:2:0::99"),
        ("203.0.113.7", "::ffff:203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
    ],
)
def test_unlocking_an_address_frees_all_of_it(site: Site, guesser: str, named: str) -> None:
    """B143: whichever address of the client is named, its next try is looked at again."""
    assert [site.login(f"user-{n}", client=guesser).status_code for n in range(21)] == [
        *([401] * 20),
        429,
    ]
    assert operate(site, "unlock", "--client", "junk").exit_code == 2
    assert site.login("user-21", client=guesser).status_code == 429
    assert operate(site, "unlock", "--client", named).exit_code == 0
    assert site.login("user-21", client=guesser).status_code == 401


def test_one_event_for_a_lock_and_one_for_its_end(
    site: Site, events: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """B145: lock, 50 refused tries, unlock by CLI: one locked, one unlocked; no password logged."""
    caplog.set_level(logging.DEBUG)
    for number in range(55):
        site.login("vera", f"tried-{number}-secretly")
    assert operate(site, "unlock", "--account", "vera").exit_code == 0
    assert operate(site, "unlock", "--account", "vera").exit_code == 3
    assert events == {"account_locked": 1, "account_unlocked": 1, "attempt_refused": 50}
    lines = [record.getMessage() for record in caplog.records if record.name == "authguard"]
    subject = site.guard.subject("key-1")
    assert [line for line in lines if "locked by" in line] == [
        f"login: locked by account for 900 s (subject {subject})",
        f"login: unlocked by operator (subject {subject})",
    ]
    assert "secretly" not in caplog.text
    assert "vera" not in caplog.text


def test_a_block_without_end_stays(post_site: Site, clock: Clock) -> None:
    """B146: tries, windows, successes elsewhere and a reset leave it; an unblock opens at once."""
    site = post_site
    site.post("/auth/password/forgot", json={"identifier": "omar"})
    link = site.messages("reset")[0].token
    assert operate(site, "block", "--account", "omar", "--reason", "left us").exit_code == 0
    for number in range(20):
        assert site.login("omar", "right omar").status_code == 429
        if not number % 7:
            clock.advance(300 * SECOND)
            assert site.login("vera", "right vera").status_code == 200
    body = {"token": link, "password": "a new password"}
    assert site.post("/auth/password/reset", json=body).status_code == 200
    assert site.login("omar", "a new password").status_code == 429
    assert site.send_code("omar").status_code == 429
    report = status(site, who="omar")
    assert (report["blocked"], report["blocked_until"]) == (True, None)
    shown = operate(site, "status", "login", "omar").stdout
    assert "by an operator, without end (account)" in shown
    assert "left us" in shown
    assert operate(site, "unlock", "--account", "omar").exit_code == 0
    assert site.login("omar", "a new password").status_code == 200


def test_a_block_of_an_hour_ends_after_an_hour(site: Site, clock: Clock) -> None:
    """B146: whatever happens in between, 3600 s after it was set it is over."""
    assert operate(site, "block", "--account", "omar", "--for", "1h").exit_code == 0
    for _ in range(12):
        clock.advance(299_999)
        assert site.login("omar", "right omar").status_code == 429
    clock.advance(11)
    assert site.login("omar", "right omar").status_code == 429
    clock.advance(1)
    assert site.login("omar", "right omar").status_code == 200


def test_nobody_unlocks_over_http_without_the_owners_link(post_site: Site) -> None:
    """A62: guessed, used, cross-site or looked-at links open nothing, and none signs in."""
    site = post_site
    site.statuses(5)
    token = site.messages("unlock")[0].token
    assert token is not None
    assert len(token) == 43  # 256 bits
    browser = site.browser(OTHER)
    assert browser.post("/auth/unlock", json={"token": "A" * 43}).status_code == 400
    assert browser.get(f"/auth/unlock?token={token}").status_code == 200
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert browser.post("/auth/unlock", data={"token": token}, headers=elsewhere).status_code == 403
    assert site.login("vera", "right vera").status_code == 429
    assert browser.post("/auth/unlock", json={"token": token}).status_code == 200
    assert browser.get("/auth/me", headers={"Accept": "application/json"}).status_code == 401
    assert browser.post("/auth/unlock", json={"token": token}).status_code == 400
    assert site.login("vera", "right vera", client=HOME).status_code == 200
    operators = [rule.rule for rule in site.app.url_map.iter_rules() if "block" in rule.rule]
    assert operators == []  # operators have a shell, and no route


@pytest.mark.slow
def test_the_operators_page_runs_as_printed(
    valkey_url: str, tmp_path: Path, guard_factory: Callable[..., Any]
) -> None:
    """B148: each line of docs/operators.md, typed as it stands, ends with the status beside it."""
    secret = "of-the-operators-page-0123456789abcdef"
    (tmp_path / "app.py").write_text(
        "import os\n"
        "from flask import Flask\n"
        "from authguard.flask import AuthGuard\n"
        "app = Flask(__name__)\n"
        "app.config['AUTHGUARD_STORE_URL'] = os.environ['AUTHGUARD_STORE_URL']\n"
        "app.config['AUTHGUARD_SECRET'] = os.environ['AUTHGUARD_SECRET']\n"
        "app.config['AUTHGUARD_DEADLINE_MS'] = 10_000\n"
        "AuthGuard(app)\n"
    )
    guard = guard_factory(secret=secret)
    for at in range(10):
        guard.attempt("login", account="vera", client=f"198.51.100.{at // 4}")
    page = (ROOT / "docs/operators.md").read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.split("\n")
    ]
    lines = [line for line in lines if line]
    assert len(lines) >= 10
    env = {"AUTHGUARD_STORE_URL": valkey_url, "AUTHGUARD_SECRET": secret, "FLASK_APP": "app"}
    for line in lines:
        command, _, expected = line.partition("  # ")
        done = shell(command, tmp_path, **env)
        assert f"exit status {done.returncode}" == (expected or "exit status 0"), (line, done)
        assert "Traceback" not in done.stderr
    assert guard.peek("login", account="vera", client="192.0.2.1").allowed
