"""What ``authguard block`` refuses, and what ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard.errors import InvalidInput
from tests.ops.conftest import CLIENT, OTHER

if TYPE_CHECKING:
    from authguard import Guard
    from tests.conftest import Clock
    from tests.ops.conftest import Terminal

NEIGHBOUR = "203.0.113.77"


@pytest.mark.parametrize(
    ("whom", "refused"),
    [
        (("--account", "VERA"), {("vera", CLIENT), ("vera", NEIGHBOUR), ("vera", OTHER)}),
        (("--client", f"::ffff:{CLIENT}"), {("vera", CLIENT), ("omar", CLIENT)}),
        (("--account", "vera", "--client", CLIENT), {("vera", CLIENT)}),
        (
            ("--network", "203.0.113.1"),
            {(who, client) for who in ("vera", "omar") for client in (CLIENT, NEIGHBOUR)},
        ),
    ],
)
def test_exactly_what_is_named_is_refused(
    terminal: Terminal, guard: Guard, whom: tuple[str, ...], refused: set[tuple[str, str]]
) -> None:
    """For every action, until the same names are unlocked; nobody else is touched."""
    assert terminal.run("block", *whom).exit_code == 0
    everybody = {(who, at) for who in ("vera", "omar") for at in (CLIENT, NEIGHBOUR, OTHER)}

    def found() -> set[tuple[str, str]]:
        return {
            (who, at)
            for who, at in everybody
            if not guard.peek("login", account=who, client=at).allowed
            and not guard.peek("otp.verify", account=who, client=at).allowed
        }

    assert found() == refused
    result = terminal.run("unlock", *whom)
    assert (result.exit_code, result.stdout) == (0, "block lifted\n")
    assert found() == set()
    assert terminal.run("unlock", *whom).exit_code == 3


def test_it_says_what_it_did(terminal: Terminal) -> None:
    """The end is told in UTC, or that there is none; in JSON as null."""
    result = terminal.run("block", "--account", "vera", "--for", "2h")
    assert result.stdout.startswith("account blocked for every action, until ")
    assert result.stdout.endswith(", in 2 h (UTC)\n")
    result = terminal.run("block", "--network", CLIENT)
    assert result.stdout == "network blocked for every action, until somebody unlocks it\n"
    told = terminal.told("block", "--account", "vera", "--client", CLIENT)
    assert told.keys() == {"act", "on", "subject", "blocked_until"}
    assert (told["on"], told["blocked_until"]) == (["account", "client"], None)


def test_a_wider_block_that_stays_is_told(terminal: Terminal) -> None:
    """Who unlocks a pair hears that its account, client or network is blocked still, and how."""
    terminal.told("block", "--account", "o'hara")
    terminal.told("block", "--network", CLIENT)
    terminal.told("block", "--account", "o'hara", "--client", CLIENT)
    result = terminal.run("unlock", "--account", "o'hara", "--client", CLIENT)
    assert result.exit_code == 0
    assert "still blocked by account; unlock --account 'o'\"'\"'hara'" in result.stderr
    assert f"still blocked by network; unlock --network {CLIENT}" in result.stderr
    assert "still blocked by client" not in result.stderr


def test_a_second_block_takes_the_firsts_place(terminal: Terminal) -> None:
    """A block without end can be made one with an end, and back."""
    for options, endless in (((), True), (("--for", "1h"), False), ((), True)):
        terminal.told("block", "--account", "vera", *options)
        told = terminal.told("status", "login", "vera")
        assert (told["blocked"], told["blocked_until"] is None) == (True, endless)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name somebody"),
        (("--account", "vera", "--for", "1"), "AG006 --for: '1' is not a period"),
        (("--account", "vera", "--for", "0s"), "AG006 --for"),
        (("--account", "vera", "--for", "3651d"), "AG006 --for"),
        (("--client", "2001:db8::/64"), "is no IP address"),
        (("--network", CLIENT, "--client", CLIENT), "--network stands alone"),
        (("--account", "a\x00b"), "account: must not hold control"),
    ],
)
def test_wrong_use_is_status_2(terminal: Terminal, arguments: tuple[str, ...], words: str) -> None:
    """What can't be meant blocks nobody."""
    result = terminal.run("block", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert terminal.told("status", "login", "vera", "--client", CLIENT)["blocked"] is False


def test_the_log_says_who_and_what_and_no_name(
    terminal: Terminal, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each act: operator, act and pseudonym; no account, no address, no reason."""
    terminal.told("block", "--account", "vera", "--client", CLIENT, "--by", "anna", "--reason", "q")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "authguard"]
    assert line == (
        "operator anna: block of account and client for every action"
        f" (subject {guard.subject('vera')})"
    )
    assert CLIENT not in line


def test_the_guard_tells_when_a_block_ends(guard: Guard) -> None:
    """In milliseconds since the epoch, by the clock that counts; None for one without end."""
    until_ms = guard.block(account="vera", for_ms=60_000)
    assert until_ms is not None
    assert 0 < until_ms - guard.now_ms() <= 60_000
    assert guard.block(account="vera") is None


def test_the_guards_own_clock_is_its_clock(
    guard_factory: object, clock: Clock, terminal: Terminal
) -> None:
    """A guard with a clock of its own reads that one."""
    guard = guard_factory(clock=clock)  # type: ignore[operator]
    assert guard.now_ms() == clock.now_ms


@pytest.mark.parametrize("text", ["", " ", "r" * 201, "a\nb", "a\u202eb"])
def test_notes_hold_short_lines_alone(guard: Guard, text: str) -> None:
    """Who calls the guard directly is held to the same texts."""
    from authguard._notes import Act

    act = Act("block", ("account",), 0, "anna", text)
    with pytest.raises(InvalidInput, match="reason: must"):
        guard.notes.add(act, account="vera")
