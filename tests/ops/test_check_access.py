"""What ``check`` says of what attempts need: version, scripts, clock, and the least ACL."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from authguard import Guard, StoreUnavailable
from authguard._notes import Act
from authguard.identity import AccountKey
from authguard.one_time import Holder
from authguard.ops.check import check, node
from authguard.stores.memory import MemoryStore
from tests.conftest import PATIENT_MS
from tests.ops.test_check import DRAWN, KEPT, Told, looked, plain, terminal_on

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.ops.conftest import Terminal

pytestmark = pytest.mark.slow

__all__ = ["terminal_on"]

PAGE: Final = (Path(__file__).parents[2] / "docs/store.md").read_text(encoding="utf-8")
LUA: Final = Path(__file__).parents[2] / "lua"
WHO: Final[dict[str, Any]] = {"account": "vera", "client": "192.0.2.7"}
PASSWORD: Final = "pw"

#: Limits that an override and the load can change, of each way that the keys are written.
POLICY: Final = """
[login]
limits = [
  { name = "pair", by = ["account", "client"], sliding_log = "5/15m" },
  { name = "account", by = ["account"], sliding_log = "4/15m", lockout = "15m" },
  { name = "client", by = ["client"], fixed_window = "30/15m" },
  { name = "spray", by = ["client"], distinct = "account", limit = "20/1h" },
  { name = "wait", by = ["account"], cooldown = ["1s", "2s"] },
  { name = "estimate", by = ["network"], sliding_window_counter = "99/15m" },
  { name = "rate", by = ["global"], token_bucket = "99/1s", burst = 99, elastic = true },
]
"""


def documented() -> list[list[str]]:
    """
    Give the lines of the page, word by word.

    For decisions, another database, check; a cluster, its check; sentinels' servers, sentinels.
    """
    lines = re.findall(r"^ACL SETUSER authguard (.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 7
    return [line.replace("PASSWORD", PASSWORD).split() for line in lines]


def commands(*lines: list[str]) -> list[str]:
    """Name the commands that lines allow."""
    return [word[1:] for line in lines for word in line if word.startswith("+")]


def as_user(terminal: Terminal, database: int = 0) -> str:
    """Give the address for the documented user."""
    url = terminal.env["AUTHGUARD_STORE_URL"].replace("//", f"//authguard:{PASSWORD}@")
    return f"{url.removesuffix('0')}{database}"


def allow(client: valkey.Valkey, *lines: list[str]) -> None:
    """Type lines of the page."""
    for line in lines:
        client.execute_command("ACL", "SETUSER", "authguard", *line)


def do_everything(guard: Guard) -> None:
    """Use every verb, and the start after a restart, when no script is known."""
    guard.attempt("login", **WHO)
    guard.attempt("login", account="omar", client="192.0.2.8").succeed()
    guard.peek("login", **WHO)
    guard.usage("login", **WHO)
    guard.block(account="nora", for_ms=60_000)
    guard.unblock(account="nora")
    guard.override("login", "pair", account="vera", to="9/15m", for_ms=60_000)
    guard.lift_override("login", "pair", account="vera")
    guard.load(0.5)
    assert guard.current_load() == 0.5
    guard.pardon("login", account="vera")
    guard.recover("login", **WHO)
    guard.clear("login", **WHO)
    guard.notes.add(Act("block", ("account",), 1, "anna"), account="vera")
    assert guard.notes.last(account="vera")
    holder = Holder(AccountKey("vera"), known=True, purpose="sign-in", channel="sms")
    challenge, code = guard.one_time.issue_code(holder, digits=6, life_ms=60_000)
    assert guard.one_time.take_code(holder, challenge, code)
    token = guard.one_time.issue_link(holder, bound_to=("hash",), life_ms=60_000)
    assert guard.one_time.take_link(holder, token, bound_to=("hash",))


@pytest.mark.parametrize("database", [0, 1])
def test_the_documented_permissions_are_enough(
    terminal_on: Callable[..., Terminal], tmp_path: Path, database: int
) -> None:
    """A user of exactly the page's line does everything; with the line for check, it is all ok."""
    terminal = terminal_on(POLICY, **KEPT)
    decisions, select, looking, *_ = documented()
    with plain(terminal) as client:
        allow(client, decisions, *([select] if database else []))
        settings: dict[str, Any] = {"secret": DRAWN, "deadline_ms": PATIENT_MS}
        settings["policies"] = tmp_path / "policy.toml"
        with Guard(as_user(terminal, database), **settings) as guard:
            do_everything(guard)
        allow(client, looking)
        status, found = looked(terminal, AUTHGUARD_STORE_URL=as_user(terminal, database))
        assert (status, found["AG068"][0]["level"]) == (0, "ok")
        denied = client.execute_command("ACL", "LOG")
        assert denied == []


def test_what_scripts_do_is_what_is_tried_and_documented() -> None:
    """Every command in the Lua stands in the page's line and is tried by ``needs.lua``."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in LUA.glob("*.lua")}
    used = set(re.findall(r'redis\.call\("([A-Z]+)"', "".join(texts.values())))
    tried = set(re.findall(r'\{ "([A-Z]+)"', texts["needs"]))
    allowed = {command.upper() for command in commands(documented()[0])}
    assert used == tried == allowed - {"EVAL", "EVALSHA"}


def test_each_missing_command_is_named(terminal_on: Callable[..., Terminal]) -> None:
    """Each command of the documented lines, taken away: status 3, and its name with its mend."""
    terminal = terminal_on(**KEPT)
    lines = documented()[:3]
    every = commands(*lines)
    assert len(every) == 10
    with plain(terminal) as client:
        for command in every:
            allow(client, *lines, [f"-{command}"])
            status, found = looked(terminal, AUTHGUARD_STORE_URL=as_user(terminal, database=1))
            name = command.upper().replace("|", " ")
            told = [each for findings in found.values() for each in findings if each["mend"]]
            assert (status, bool(told)) == (3, True)
            for each in told:
                assert name in each["seen"]
                assert f"+{command}" in each["mend"]
            wrong = {each["code"] for each in told if each["level"] == "error"}
            assert wrong == (set() if command in ("info", "config|get") else {"AG068"})


@pytest.mark.parametrize("keys", ["~other:*", "%R~rl:v1:*"])
def test_keys_that_the_user_may_not_use_are_named(
    terminal_on: Callable[..., Terminal], keys: str
) -> None:
    """A pattern that doesn't cover our keys, or lets them be read alone, is an error."""
    terminal = terminal_on(**KEPT)
    decisions, _, looking, *_ = documented()
    with plain(terminal) as client:
        allow(client, decisions, looking, ["resetkeys", keys])
        status, found = looked(terminal, AUTHGUARD_STORE_URL=as_user(terminal))
    (finding,) = found["AG068"]
    assert (status, finding["level"]) == (3, "error")
    refused = "SET, DEL" if keys.startswith("%R") else "GET, PTTL, SET, DEL"
    assert finding["seen"] == (
        f"the store's user may not run {refused} on keys such as rl:v1:…, which attempts need"
    )
    assert "~rl:v1:*" in finding["mend"]


def test_a_user_whose_name_is_a_word_of_errors_is_told_right(
    terminal_on: Callable[..., Terminal],
) -> None:
    """The server's text holds the user's name; what it lacks is read right all the same."""
    terminal = terminal_on(**KEPT)
    url = terminal.env["AUTHGUARD_STORE_URL"].replace("//", "//key-access:pw@")
    with plain(terminal) as client:
        rules = ("on", ">pw", "~rl:v1:*", "+@all", "-set")
        client.execute_command("ACL", "SETUSER", "key-access", *rules)
        _, found = looked(terminal, AUTHGUARD_STORE_URL=url)
    assert found["AG068"][0]["seen"] == "the store's user may not run SET, which attempts need"


@pytest.mark.parametrize(
    ("version", "level"),
    [("6.0.16", "error"), ("5.0.7", "error"), ("6.2.14", "ok"), ("7.0.15", "ok"), ("8.2", "ok")],
)
def test_a_redis_that_is_too_old_is_an_error(version: str, level: str) -> None:
    """Older than 6.2: an error with the version that answers and the one that is needed."""
    finding = check(Guard(Told(server=f"redis_version:{version}"), secret=DRAWN)).findings[0]
    assert (finding.code, finding.level) == ("AG060", level)
    assert finding.seen.startswith(f"Redis {version} answers")


def test_every_valkey_is_new_enough() -> None:
    """A Valkey tells an old redis_version to please old clients; its own counts."""
    told = Told(server="redis_version:5.0.0\r\nvalkey_version:7.2.4\r\n")
    assert check(Guard(told, secret=DRAWN)).findings[0].seen == "Valkey 7.2.4 answers"


def test_clocks_that_differ_are_a_warning(
    terminal_on: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds or more, either way: how much, whose is ahead, and which follows which."""
    terminal = terminal_on(**KEPT)
    here_ms = node._here_ms
    for off_ms, told in (
        (0, None),
        (1_000, None),
        (60_500, "the store's clock is 60 s behind this machine's"),
        (-3_600_500, "the store's clock is 3,600 s ahead of this machine's"),
    ):
        monkeypatch.setattr(node, "_here_ms", lambda off_ms=off_ms: here_ms() + off_ms)
        status, found = looked(terminal)
        (finding,) = found["AG067"]
        if told is None:
            assert (status, finding["level"]) == (0, "ok")
        else:
            assert (status, finding["level"]) == (3, "warning")
            assert finding["seen"].startswith(told)
            assert "decisions follow the store's alone" in finding["seen"]


def test_a_slow_answer_is_no_difference_of_clocks(
    terminal_on: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What asking took is no clock's fault: half of it is allowed for."""
    begun = iter([0, 10_000, 0, 10_000])
    here_ms = node._here_ms
    monkeypatch.setattr(node, "_here_ms", lambda: here_ms() + next(begun))
    status, found = looked(terminal_on(**KEPT))
    assert (status, found["AG067"][0]["level"]) == (0, "ok")


def test_a_server_that_takes_no_writes_is_an_error(terminal_on: Callable[..., Terminal]) -> None:
    """Out of memory, too few replicas, or a replica itself: the word, and what helps."""
    terminal = terminal_on(**KEPT)
    with plain(terminal) as client:
        for setting, word in (("maxmemory 1", "OOM"), ("min-replicas-to-write 1", "NOREPLICAS")):
            name, value = setting.split()
            client.config_set(name, value)
            (finding,) = looked(terminal)[1]["AG066"]
            assert finding["level"] == "error"
            assert finding["seen"].startswith(f"the server takes no writes now ({word})")
            client.config_set(name, 0)
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        status, found = looked(terminal)
    assert (status, found["AG071"][0]["level"]) == (3, "error")
    assert found["AG066"][0]["seen"].startswith("the server takes no writes now (READONLY)")
    assert "point the store's address at the primary" in found["AG066"][0]["mend"]


@pytest.mark.parametrize(
    ("renamed", "told"),
    [
        ("EVALSHA", "the server runs no script: it doesn't know EVALSHA"),
        ("PTTL", "PTTL fails in scripts, so attempts are refused"),
    ],
)
def test_a_command_that_the_server_does_not_have_is_an_error(
    terminal_on: Callable[..., Terminal], renamed: str, told: str
) -> None:
    """A command that was renamed away is named, whether attempts or their scripts need it."""
    status, found = looked(terminal_on(**KEPT, rename_command=f"{renamed} ''"))
    (finding,) = found["AG066"]
    assert (status, finding["level"]) == (3, "error")
    assert finding["seen"].startswith(told)


def test_scripts_that_the_server_has_forgotten_are_sent_again(
    terminal_on: Callable[..., Terminal],
) -> None:
    """After SCRIPT FLUSH a look finds all well, and decides that by running both ways."""
    terminal = terminal_on(**KEPT)
    with plain(terminal) as client:
        for _ in range(2):
            client.script_flush()
            status, found = looked(terminal)
            assert (status, found["AG066"][0]["seen"]) == (
                0,
                "scripts run, by EVALSHA and by EVAL",
            )
        ran = client.info("commandstats")
        assert (ran["cmdstat_eval"]["calls"], ran["cmdstat_evalsha"]["calls"]) == (2, 2)


def test_an_answer_that_is_none_is_an_outage() -> None:
    """A reply to the needs that is not well-formed: nobody is told that all is well."""

    class Nonsense(MemoryStore):
        def ask(self, *command: str) -> object:
            return b"" if command[0] == "INFO" else [secrets.randbelow(9), b"GET"]

    with pytest.raises(StoreUnavailable, match="malformed reply"):
        check(Guard(Nonsense(lambda: 0), secret=DRAWN))
