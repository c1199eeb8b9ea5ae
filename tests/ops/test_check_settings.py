"""What ``check`` says of the settings: the secret, the proxies, the deadline."""

from __future__ import annotations

import json
import re
import secrets
import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask

from authguard import Guard
from authguard.flask import AuthGuard
from authguard.ops.check import check
from authguard.ops.check.settings import weakness
from authguard.stores.memory import MemoryStore
from tests.conftest import SECRET
from tests.ops.test_check import DRAWN, KEPT, looked, terminal_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.ops.check import Finding
    from tests.ops.conftest import Terminal

__all__ = ["terminal_on"]

ROOT = Path(__file__).parents[2]

WEAK = [
    SECRET,
    "please-Change_This-before-production-1",
    "my super SECRET key of the web shop 99",
    "CorrectHorseBatteryStaple-2026-xkcd-936",
    "dev-only-dev-only-dev-only-dev-only-dev",
    "k7Rq9zWb4Tk7Rq9zWb4Tk7Rq9zWb4Tk7Rq9z",
    "ghtnhrjjhvgntgbjhjgtjnhrghvghjngrbtj",
    "GHIJKLMNOPQRSTUVWXYZghijklmnopqrstuv",
    "0123456789012345678901234567890123456789",
    "the quick qwertz keyboard of asdfgh zx",
]


def of_secret(*given: str) -> list[Finding]:
    """Look a guard over that has these secrets."""
    report = check(Guard(MemoryStore(lambda: 0), secret=list(given)))
    return [finding for finding in report.findings if finding.code == "AG073"]


@pytest.mark.parametrize("secret", WEAK)
def test_a_secret_that_nobody_drew_is_a_warning(secret: str) -> None:
    """Words of examples, repetitions, few characters, rows: a warning that shows none of it."""
    (finding,) = of_secret(secret)
    assert finding.level == "warning"
    assert "secrets.token_urlsafe(32)" in str(finding.mend)
    text = json.dumps(finding.as_json())
    assert str(len(secret)) not in text.replace("(32)", "")
    assert not any(secret[at : at + 10] in text for at in range(len(secret) - 9))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: secrets.token_urlsafe(32),
        lambda: secrets.token_hex(32),
        lambda: secrets.token_hex(16),
        lambda: "".join(secrets.choice(string.ascii_letters) for _ in range(32)),
    ],
)
def test_a_secret_that_was_drawn_is_ok(draw: Callable[[], str]) -> None:
    """Of 300 secrets drawn in each usual way at most one looks weak by chance."""
    assert sum(weakness(draw().encode()) is not None for _ in range(300)) <= 1


def test_bytes_that_are_no_text_are_looked_at_too() -> None:
    """Raw bytes from the system are as good as any."""
    assert weakness(secrets.token_bytes(32)) is None


def test_of_several_secrets_the_weak_one_is_told() -> None:
    """Which of the list it is, by its place; a list of good ones is one ok."""
    other = DRAWN[::-1]
    (finding,) = of_secret(DRAWN, SECRET)
    assert finding.seen.startswith("secret 2 of 2 holds a word that stands in examples")
    assert [finding.level for finding in of_secret(DRAWN, other)] == ["ok"]


def test_the_secrets_that_stand_in_our_pages_are_weak() -> None:
    """What README, docs, demo, benchmarks and tests write as a secret would be told as one."""
    pattern = re.compile(r"""secret["']?\]?\s*=\s*b?["']([^"']{32,})["']""", re.IGNORECASE)
    folders = ("docs", "demo_app", "bench")
    pages = [
        ROOT / "tests/conftest.py",
        ROOT / "README.md",
        *(page for name in folders for page in ROOT.glob(f"{name}/**/*")),
    ]
    texts = [page.read_text(encoding="utf-8") for page in pages if page.suffix in (".md", ".py")]
    written = {found for text in texts for found in pattern.findall(text)}
    assert SECRET in written
    assert [secret for secret in written if weakness(secret.encode()) is None] == []


def test_a_weak_secret_is_told_at_the_command_line(terminal_on: Callable[..., Terminal]) -> None:
    """The secret of the environment is looked at: status 3."""
    status, found = looked(terminal_on(**KEPT), AUTHGUARD_SECRET=SECRET.replace(" ", "-"))
    assert (status, found["AG073"][0]["level"]) == (3, "warning")


@pytest.fixture
def of_app(
    terminal_on: Callable[..., Terminal],
) -> Callable[..., tuple[int, dict[str, dict[str, Any]]]]:
    """Run ``flask authguard check`` for an app with settings of its own."""
    url = terminal_on(**KEPT).env["AUTHGUARD_STORE_URL"]

    def look(**config: Any) -> tuple[int, dict[str, dict[str, Any]]]:
        app = Flask("an_app")
        app.config.update(AUTHGUARD_STORE_URL=url, AUTHGUARD_SECRET=DRAWN)
        app.config.update({"AUTHGUARD_DEADLINE_MS": 1_000} | config)
        auth = AuthGuard(app, check_at_start=False)
        result = app.test_cli_runner().invoke(args=["authguard", "check", "--json"])
        with app.app_context():
            auth.guard.close()
        findings = json.loads(result.stdout)["findings"]
        return result.exit_code, {finding["code"]: finding for finding in findings}

    return look


def test_proxies_that_nobody_spoke_of_are_a_warning(
    of_app: Callable[..., tuple[int, dict[str, dict[str, Any]]]],
) -> None:
    """Unset is a warning; an empty list says that there are none, and a list names them."""
    status, found = of_app()
    assert (status, found["AG074"]["level"]) == (3, "warning")
    assert "set []" in found["AG074"]["mend"]
    for proxies, told in (([], "no proxy is trusted"), (["unix:"], "proxies are declared")):
        status, found = of_app(AUTHGUARD_TRUSTED_PROXIES=proxies)
        assert (status, found["AG074"]["level"]) == (0, "ok")
        assert found["AG074"]["seen"].startswith(told)


@pytest.mark.parametrize(
    ("deadline_ms", "level"), [(1_001, "warning"), (1_000, "ok"), (100, "ok"), (60_000, "warning")]
)
def test_a_deadline_that_holds_workers_is_a_warning(
    of_app: Callable[..., tuple[int, dict[str, dict[str, Any]]]], deadline_ms: int, level: str
) -> None:
    """More than a second for one decision: what it means while the store hangs."""
    _, found = of_app(AUTHGUARD_TRUSTED_PROXIES=[], AUTHGUARD_DEADLINE_MS=deadline_ms)
    assert found["AG075"]["level"] == level


def test_a_deadline_that_nothing_can_meet_is_a_warning() -> None:
    """Less than ten milliseconds: a moment's delay refuses attempts."""
    from authguard.ops.check import Setup

    guard = Guard(MemoryStore(lambda: 0), secret=DRAWN)
    for deadline_ms, level in ((9, "warning"), (10, "ok")):
        found = check(guard, Setup(deadline_ms=deadline_ms, proxies=0)).findings
        assert [each.level for each in found if each.code == "AG075"] == [level]


def test_without_an_app_nothing_is_said_of_its_settings(
    terminal_on: Callable[..., Terminal],
) -> None:
    """``authguard check`` knows neither proxies nor deadline, so it is silent on both."""
    _, found = looked(terminal_on(**KEPT))
    assert not {"AG074", "AG075"}.intersection(found)
