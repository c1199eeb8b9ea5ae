"""``--exact``: a key that views take as it is, such as an API key, is reached as it is spelt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from flask import request

from authguard.flask import AuthGuard
from authguard.identity import AccountKey
from tests.flask.conftest import bare_app
from tests.ops.conftest import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result
    from flask import Flask

    from authguard import Guard
    from tests.ops.conftest import Terminal

__all__ = ["bare_app"]

AS_SPELT = "Note: names count by their spelling, whatever its case"
API = {
    "api": {
        "limits": [
            {"name": "hour", "by": ["account"], "sliding_log": "2/1h"},
            {
                "name": "burst",
                "by": ["account"],
                "token_bucket": "1/1h",
                "burst": 3,
                "tiers": {"pro": {"token_bucket": "1/1h", "burst": 20}},
            },
            {"name": "turn", "by": ["account"], "leaky_bucket": "1/1s", "queue": 9},
        ]
    }
}


class Api:
    """A limited view of an app whose callers bring their keys, and its operators' desk."""

    def __init__(self, app: Flask, **options: Any) -> None:
        app.config.update(AUTHGUARD_POLICY=API)
        self.app, self.auth = app, AuthGuard(app, **options)

        @app.get("/")
        @self.auth.limit("api", by=lambda: request.headers["X-Api-Key"])
        def view() -> str:
            return "fine"

    def statuses(self, key: str, times: int = 1) -> list[int]:
        """Ask several times with a key."""
        browser = self.app.test_client()
        headers = {"X-Api-Key": key}
        return [browser.get("/", headers=headers).status_code for _ in range(times)]

    def operate(self, *arguments: str) -> Result:
        """Run ``flask authguard`` in this process."""
        return self.app.test_cli_runner().invoke(args=["authguard", *arguments])

    def limits(self, key: str, *options: str) -> dict[str, Any]:
        """Ask for the status of a key; give its limits by name."""
        result = self.operate("status", "api", key, "--json", *options)
        assert result.exit_code == 0, result.output
        return {limit["name"]: limit for limit in json.loads(result.stdout)["limits"]}

    def override(self, limit: str, key: str, *options: str) -> Result:
        """Override one limit of a key for an hour."""
        named = ("override", "api", limit, "--account", key, "--for", "1h")
        result = self.operate(*named, *options)
        assert result.exit_code == 0, result.output
        return result


@pytest.fixture
def api(bare_app: Flask) -> Api:
    """Give a limited view whose app knows no accounts."""
    return Api(bare_app)


def test_status_shows_the_key_that_is_meant(api: Api) -> None:
    """A full key is shown as full with ``--exact``, and without it another one is."""
    assert api.statuses("Key-1", 3) == [200, 200, 429]
    assert (
        api.limits("Key-1", "--exact")["hour"]["used"],
        api.limits("Key-1")["hour"]["used"],
    ) == (
        2,
        0,
    )
    assert api.limits("key-1", "--exact")["hour"]["used"] == 0
    told = json.loads(api.operate("status", "api", "Key-1", "--exact", "--json").stdout)
    assert (told["account"], told["failures"]) == ("Key-1", 2)
    told = json.loads(api.operate("status", "api", "Key-1", "--json").stdout)
    assert (told["account"], told["failures"]) == ("key-1", 0)


@pytest.mark.parametrize("exact", [True, False])
def test_an_override_reaches_the_key_that_is_meant(api: Api, exact: bool) -> None:
    """With ``--exact`` ``Key-1`` has other numbers, without it ``key-1``; never both."""
    options = ("--exact",) if exact else ()
    api.override("hour", "Key-1", "--to", "3/1h", *options)
    assert api.statuses("Key-1", 4) == [200, 200, 200 if exact else 429, 429]
    assert api.statuses("key-1", 4) == [200, 200, 429 if exact else 200, 429]
    lift = ("override", "api", "hour", "--account", "Key-1", "--lift")
    assert api.operate(*lift, *(() if exact else ("--exact",))).exit_code == 3
    assert api.operate(*lift, *options).exit_code == 0


def test_an_unlock_frees_the_key_that_is_meant(api: Api) -> None:
    """Nothing of another key is freed, and what is freed is said."""
    assert api.statuses("Key-1", 3) == [200, 200, 429]
    assert api.statuses("key-1", 1) == [200]
    result = api.operate("unlock", "api", "--account", "Key-1", "--exact")
    assert (result.exit_code, result.stderr) == (0, "")
    assert api.limits("key-1")["hour"]["used"] == 1
    assert api.statuses("Key-1", 3) == [200, 200, 429]
    assert api.operate("unlock", "api", "--account", "KEY-1", "--exact").exit_code == 3


def test_a_block_holds_for_the_key_that_is_meant(api: Api) -> None:
    """Who is told to be blocked is, and nobody else; its unlock ends it."""
    named = ("--account", "Key-1", "--exact")
    assert api.operate("block", *named, "--for", "1h").exit_code == 0
    assert (api.statuses("Key-1"), api.statuses("key-1")) == ([429], [200])
    assert api.operate("unlock", "--account", "Key-1").exit_code == 0  # of key-1 what it has used
    assert api.statuses("Key-1") == [429]
    assert api.operate("unlock", *named).exit_code == 0
    assert api.statuses("Key-1") == [200]


def test_what_was_done_is_noted_beside_the_key(api: Api) -> None:
    """Acts on an exact key are in its own status, with who and why."""
    api.override("hour", "Key-1", "--to", "3/1h", "--exact", "--by", "anna", "--reason", "asked")
    told = json.loads(api.operate("status", "api", "Key-1", "--exact", "--json").stdout)
    assert [(it["act"], it["by"], it["reason"]) for it in told["acts"]] == [
        ("override", "anna", "asked")
    ]
    assert json.loads(api.operate("status", "api", "Key-1", "--json").stdout)["acts"] == []


def test_an_exact_key_is_not_looked_up(bare_app: Flask) -> None:
    """The app's ``resolve`` isn't asked of an exact key, and no note says nobody has it."""
    asked: list[str] = []

    def resolve(name: str) -> str | None:
        asked.append(name)
        return None

    api = Api(bare_app, resolve=resolve)
    result = api.operate("status", "api", "Key-1", "--exact")
    assert (result.exit_code, asked) == (0, [])
    assert "nobody has that name" not in result.stderr
    result = api.operate("status", "api", "Key-1")
    assert "nobody has that name: it counts by its spelling; --exact takes a key" in result.stderr
    assert asked


def test_without_the_app_it_is_the_same_key(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """``authguard`` by itself reaches it, too; its note of how names count is on stderr."""
    for _ in range(5):
        guard.attempt("login", account=AccountKey("Key-1"), client=OTHER)
    fail(1, account="key-1")
    exact, spelt = (
        terminal.run("status", "--json", "login", "Key-1", *options)
        for options in (["--exact"], [])
    )
    assert [json.loads(each.stdout)["failures"] for each in (exact, spelt)] == [5, 1]
    assert (AS_SPELT in exact.stderr, AS_SPELT in spelt.stderr) == (False, True)
    named = ("--account", "Key-1", "--exact")
    to = terminal.run("override", "login", "day", *named, "--to", "50/24h", "--for", "1h")
    assert (to.exit_code, to.stderr) == (0, "")
    for key, places in ((AccountKey("Key-1"), 50), ("Key-1", 9)):
        stands = {usage.name: usage.limit for usage in guard.usage("login", account=key)}
        assert stands["day"] == places
    assert terminal.told("status", "login", "Key-1", "--exact")["locked"]
    assert terminal.run("block", *named, "--for", "1h").exit_code == 0
    assert terminal.run("unlock", *named).exit_code == 0
    told = terminal.told("status", "login", "Key-1", "--exact")
    assert (told["locked"], told["failures"]) == (False, 0)
    assert [act["act"] for act in told["acts"]] == ["unlock", "block", "override"]
    assert terminal.told("status", "login", "Key-1")["failures"] == 1


@pytest.mark.parametrize("key", ["", "a\x00b", "a" * 255, "a\nb"], ids=ascii)
def test_what_can_be_no_key_is_wrong_use(terminal: Terminal, key: str) -> None:
    """Status 2 and a line, from each of the commands, and nothing is stored."""
    for command in (
        ("status", "login", key),
        ("override", "login", "account", "--account", key, "--to", "9/1h", "--for", "1h"),
        ("unlock", "--account", key),
        ("block", "--account", key, "--for", "1h"),
    ):
        result = terminal.run(*command, "--exact")
        assert (result.exit_code, result.stdout) == (2, ""), command
        assert "account" in result.stderr
        assert "Traceback" not in result.stderr


def test_a_burst_and_a_queue_by_command(api: Api) -> None:
    """What a bucket holds can be given beside its rate, and is told back."""
    result = api.override("burst", "Key-1", "--exact", "--to", "2/1h", "--burst", "7")
    assert result.stdout.startswith("api: burst of account is 2/1h burst 7 until ")
    result = api.override("turn", "Key-1", "--exact", "--to", "5/1s", "--queue", "0")
    assert result.stdout.startswith("api: turn of account is 5/1s queue 0 until ")
    limits = api.limits("Key-1", "--exact")
    assert (limits["burst"]["limit"], limits["burst"]["window_ms"]) == (7, 7 * 1_800_000)
    assert (limits["turn"]["limit"], limits["turn"]["window_ms"]) == (1, 200)
    acts = json.loads(api.operate("status", "api", "Key-1", "--exact", "--json").stdout)["acts"]
    assert [act["to"] for act in acts] == ["5/1s queue 0", "2/1h burst 7"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("burst", "--burst", "7", "--exempt", "--for", "1h"), "goes with --to"),
        (("burst", "--burst", "7", "--lift"), "goes with --to"),
        (
            ("burst", "--to", "1/1s", "--burst", "7", "--queue", "7", "--for", "1h"),
            "one of the two",
        ),
        (("burst", "--to", "1/1s", "--burst", "0", "--for", "1h"), "--burst"),
        (("burst", "--to", "1/1s", "--queue", "-1", "--for", "1h"), "--queue"),
        (("burst", "--to", "1/1s", "--queue", "7", "--for", "1h"), "AG005 to"),
        (("hour", "--to", "1/1h", "--burst", "7", "--for", "1h"), "AG005 to"),
        (("burst", "--to", "1/3650d", "--burst", "7", "--for", "1h"), "AG005 --to"),
        (("burst", "--to", "fast", "--burst", "7", "--for", "1h"), "AG005 --to: 'fast'"),
    ],
)
def test_a_burst_that_fits_nothing(api: Api, options: tuple[str, ...], words: str) -> None:
    """A burst without a rate, of another kind or out of range is status 2 and says so."""
    result = api.operate("override", "api", options[0], "--account", "vera", *options[1:])
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert api.limits("vera")["burst"]["override_until"] is None


def test_the_burst_of_an_account_s_plan_stays(bare_app: Flask) -> None:
    """More for a customer is never less: only the rate changes, the plan's burst stays."""
    api = Api(bare_app, tier={"Key-1": "pro"}.get)
    api.override("burst", "Key-1", "--exact", "--to", "50/1s")
    api.override("burst", "omar", "--to", "50/1s")
    assert api.limits("Key-1", "--exact")["burst"]["limit"] == 20
    assert api.limits("omar")["burst"]["limit"] == 3
    api.override("burst", "Key-1", "--exact", "--to", "50/1s", "--burst", "7")
    assert api.limits("Key-1", "--exact")["burst"]["limit"] == 7


def test_whose_tiers_are_shown(bare_app: Flask, terminal: Terminal) -> None:
    """Where only a view knows a caller's plan, a note says that none is reckoned with."""
    note = "limits are shown as without a tier"
    result = Api(bare_app).operate("status", "api", "Key-1", "--exact")
    assert (result.exit_code, note in result.stderr) == (0, True)
    assert note not in terminal.run("status", "login", "vera").stderr


def test_with_the_app_s_function_no_note_is_needed(bare_app: Flask) -> None:
    """An app that knows its customers' plans shows each by its own."""
    api = Api(bare_app, tier={"Key-1": "pro"}.get)
    result = api.operate("status", "api", "Key-1", "--exact", "--json")
    assert result.stderr == ""
    assert json.loads(result.stdout)["limits"][1]["limit"] == 20
