"""What ``authguard unlock`` frees, what it leaves, and what is kept of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from authguard import Denied
from authguard._notes import KEPT, LIFE_MS
from tests.ops.conftest import CLIENT, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.ops.conftest import Terminal


def test_it_names_what_it_freed(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """B140: status 0 with the locks and counts of each action; 3 and other words with nothing."""
    fail(3)
    fail(2, client=CLIENT)
    fail(3, "otp.verify")
    result = terminal.run("unlock", "--account", " VERA")
    assert result.exit_code == 0
    assert result.stdout == (
        "login: 10 places freed in its logs, 1 lock ended\n"
        "otp.verify: 3 places freed in its logs, 1 lock ended\n"
        "afresh from every client: login: pair\n"
    )
    assert guard.peek("login", account="vera", client="192.0.2.1").allowed
    assert guard.peek("otp.verify", account="vera", client="192.0.2.1").allowed
    result = terminal.run("unlock", "--account", "vera")
    assert result.exit_code == 3
    assert result.stdout == "nothing to free: no count, lock or block by account\n"


def test_json_says_the_same(terminal: Terminal, fail: Callable[..., None]) -> None:
    """One object with what was freed by action; with nothing, status 3 and the same fields."""
    fail(5, client=CLIENT)
    told = terminal.told("unlock", "--account", "vera", "login")
    assert told["freed"] is True
    assert told["actions"] == [{"action": "login", "entries": 10, "locks": 1, "recovery": False}]
    result = terminal.run("unlock", "--account", "vera", "login", "--json")
    assert result.exit_code == 3
    nothing = json.loads(result.stdout)
    assert nothing.keys() == told.keys()
    assert nothing["freed"] is False


def test_a_named_action_is_the_only_one(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """An unlock of otp.verify leaves the login's lock."""
    fail(5, client=CLIENT)
    fail(3, "otp.verify")
    assert terminal.run("unlock", "otp.verify", "otp.verify", "--account", "vera").exit_code == 0
    assert not guard.peek("login", account="vera", client=OTHER).allowed
    assert guard.peek("otp.verify", account="vera", client=OTHER).allowed


def test_an_account_is_freed_wherever_it_comes_from(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """B139: what counts by account and client starts afresh too, though no client is named."""
    fail(2)
    fail(3, client=CLIENT)
    time.sleep(0.002)  # what is made in the pardon's own millisecond counts
    assert terminal.run("unlock", "login", "--account", "vera").exit_code == 0
    assert guard.peek("login", account="vera", client=OTHER).remaining == 5
    assert guard.peek("login", account="vera", client=CLIENT).remaining == 5
    standing = {use.name: use.used for use in guard.usage("login", client=OTHER)}
    assert standing["client"] == standing["network"] == 2


def test_a_named_client_frees_that_pair_alone(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """With --client the account is let in from there, and a guesser elsewhere stays out."""
    fail(5, client=CLIENT)
    result = terminal.run("unlock", "login", "--account", "vera", "--client", OTHER)
    assert result.exit_code == 0
    assert guard.peek("login", account="vera", client=OTHER).allowed
    assert guard.peek("login", account="vera", client=CLIENT).refused_by == ("pair",)


def test_a_client_is_freed_whole(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """B143: any address of its /64 names it; its log and its spray are empty, whoever tried."""
    for number in range(20):
        fail(1, account=f"user-{number}", client="2001:db8:1:2::1")
    with pytest.raises(Denied):
        fail(1, account="user-99", client="2001:db8:1:2::1")
    result = terminal.run("unlock", "--client", "2001:DB8:1:2:0::99")
    assert (result.exit_code, result.stdout) == (0, "login: 40 places freed in its logs\n")
    fail(1, account="user-99", client="2001:db8:1:2::1")
    fail(1, account="user-1", client="203.0.113.7")
    assert terminal.run("unlock", "--client", "::ffff:203.0.113.7").exit_code == 0
    used = {use.name: use.used for use in guard.usage("login", client="203.0.113.7")}
    assert (used["client"], used["spray"], used["network"]) == (0, 0, 1)


def test_what_refuses_still_is_told(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """A client whose network is full hears so, and how to free it; a pair hears of its client."""
    for number in range(40):
        fail(1, account=f"user-{number}", client=f"203.0.113.{number % 4}")
    result = terminal.run("unlock", "--client", "203.0.113.1")
    assert result.exit_code == 0
    assert "still refused by login: network; unlock --network 203.0.113.1\n" in result.stderr
    assert not guard.peek("login", account="vera", client="203.0.113.1").allowed
    result = terminal.run("unlock", "--network", "203.0.113.1")
    assert (result.exit_code, "still" in result.stderr) == (0, False)
    assert guard.peek("login", account="vera", client="203.0.113.1").allowed
    for number in range(20):
        fail(1, account=f"user-{number}", client=OTHER)
    told = terminal.told("unlock", "login", "--account", "user-7", "--client", OTHER)
    assert told["still_full"] == ["login: client"]


def test_a_network_is_freed_alone(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """By any address of it; its clients keep their own counts."""
    fail(1, account="omar", client="203.0.113.7")
    fail(2, account="tess", client="203.0.113.8")
    result = terminal.run("unlock", "--network", "203.0.113.8")
    assert (result.exit_code, result.stdout) == (0, "login: 3 places freed in its logs\n")
    used = {use.name: use.used for use in guard.usage("login", client="203.0.113.8")}
    assert (used["network"], used["client"], used["spray"]) == (0, 2, 1)
    for wrong in ({"account": "vera"}, {"account": "vera", "client": OTHER}, {"only": "account"}):
        with pytest.raises(ValueError, match="only: must be client or network"):
            guard.clear("login", **{"only": "network", **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name somebody: --account, --client or --network"),
        (("login",), "name somebody"),
        (("--network", CLIENT, "--account", "vera"), "--network stands alone"),
        (("--network", CLIENT, "--client", CLIENT), "--network stands alone"),
        (("--client", "junk"), "junk is no IP address"),
        (("--client", "203.0.113.*"), "is no IP address"),
        (("--network", "203.0.113.0/24"), "is no IP address"),
        (("--account", ""), "account: must not be empty"),
        (("--account", "vera", "nothing"), "AG009 action 'nothing'"),
        (("--account", "vera", "unlock"), "AG023 [unlock] limits"),
        (("--account", "vera", "--reason", "a\nb"), "must not hold control"),
        (("--account", "vera", "--reason", "r" * 201), "must have 1 to 200 characters"),
        (("--account", "vera", "--by", " "), "must have 1 to 200 characters"),
    ],
)
def test_wrong_use_is_status_2_and_frees_nothing(
    terminal: Terminal, fail: Callable[..., None], arguments: tuple[str, ...], words: str
) -> None:
    """B143: junk is refused with a line that says why, before anything is touched."""
    fail(4, client=CLIENT)
    result = terminal.run("unlock", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    told = terminal.told("status", "login", "vera", "--client", CLIENT)
    assert (told["failures"], told["acts"]) == (4, [])


def test_who_when_and_why_are_kept(
    terminal: Terminal, guard: Guard, fail: Callable[..., None]
) -> None:
    """The status of the same subject tells each act, the last first; nobody else's does."""
    fail(5, client=CLIENT)
    terminal.told("unlock", "login", "--account", "vera", "--by", "anna", "--reason", "rang us")
    terminal.told("block", "--account", "Vera", "--by", "ben", "--for", "1h")
    last, first = terminal.told("status", "otp.verify", "vera")["acts"]
    assert (first["act"], first["by"], first["reason"]) == ("unlock", "anna", "rang us")
    assert (first["on"], first["actions"], first["until"]) == (["account"], ["login"], None)
    assert (last["act"], last["by"], last["reason"]) == ("block", "ben", None)
    assert last["until"] is not None
    assert first["at"] < last["at"]
    assert terminal.told("status", "login", "omar")["acts"] == []
    assert guard.notes.last(account="vera", client=CLIENT) == ()


def test_a_client_shows_what_was_done_to_its_network(terminal: Terminal) -> None:
    """With KEY and --client, acts on the account, the client, the network and the pair are told."""
    for whom in (("--account", "vera"), ("--client", CLIENT), ("--network", "203.0.113.200")):
        terminal.told("block", *whom)
    terminal.told("block", "--account", "vera", "--client", CLIENT)
    acts = terminal.told("status", "login", "vera", "--client", CLIENT)["acts"]
    assert [act["on"] for act in acts] == [
        ["account", "client"],
        ["network"],
        ["client"],
        ["account"],
    ]
    acts = terminal.told("status", "login", "--client", "203.0.113.5")["acts"]
    assert [act["on"] for act in acts] == [["network"]]


def test_an_unlock_of_nothing_leaves_no_note(terminal: Terminal, client: valkey.Valkey) -> None:
    """Where nothing was freed nothing was done."""
    assert terminal.run("unlock", "--account", "vera").exit_code == 3
    assert [key for key in client.scan_iter() if not key.endswith(b"~")] == []


def test_without_a_name_it_is_the_systems_user(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who runs the command did it; where that user has no name, its number."""
    monkeypatch.setattr("getpass.getuser", lambda: "carla")
    terminal.told("block", "--account", "vera")

    def nobody() -> str:
        raise OSError

    monkeypatch.setattr("getpass.getuser", nobody)
    terminal.told("block", "--account", "vera")
    assert [act["by"][:4] for act in terminal.told("status", "login", "vera")["acts"]] == [
        "user",
        "carl",
    ]


def test_ten_acts_are_kept_for_90_days(terminal: Terminal, client: valkey.Valkey) -> None:
    """The oldest goes; the record lives 90 days from the last act."""
    for number in range(KEPT + 2):
        terminal.told("block", "--client", CLIENT, "--reason", f"number {number:02}")
    acts = terminal.told("status", "login", "--client", CLIENT)["acts"]
    assert [act["reason"] for act in acts] == [f"number {n:02}" for n in range(KEPT + 1, 1, -1)]
    lives = sorted(client.pttl(key) for key in client.scan_iter())
    assert len(lives) == 2  # the block and the notes
    assert LIFE_MS - 60_000 < lives[0] <= LIFE_MS
    size = max(client.strlen(key) for key in client.scan_iter())
    terminal.told("block", "--client", CLIENT, "--reason", "number 99")
    assert max(client.strlen(key) for key in client.scan_iter()) <= size


def test_the_store_shows_neither_names_nor_reasons(
    terminal: Terminal, client: valkey.Valkey
) -> None:
    """A copy of the store tells nobody who was unlocked, by whom, or why."""
    terminal.told("block", "--account", "vera", "--by", "anna-anna", "--reason", "stolen phone")
    everything = b"".join(key + client.get(key) for key in client.scan_iter())
    for word in (b"vera", b"anna", b"stolen", b"phone", b"block", b"account"):
        assert word not in everything


def test_notes_that_were_written_over_stop_nobody(
    terminal: Terminal, client: valkey.Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that can't be read is left out, with a line in the log, and replaced."""
    terminal.told("block", "--account", "vera")
    (notes,) = (key for key in client.scan_iter() if client.strlen(key) > 30)
    client.setrange(notes, 12, b"x" * 40)
    assert terminal.told("status", "login", "vera")["acts"] == []
    assert "can't be read and are left out" in caplog.text
    assert terminal.run("unlock", "--account", "vera", "--reason", "again").exit_code == 0
    assert [act["reason"] for act in terminal.told("status", "login", "vera")["acts"]] == ["again"]


def test_while_secrets_change_both_count(terminal: Terminal, fail: Callable[..., None]) -> None:
    """With the new and the old secret, counts and notes under the old one are seen and freed."""
    fail(5, client=CLIENT)
    terminal.told("block", "--account", "vera", "--reason", "before")
    both = "a-new-secret-of-32-bytes-or-even-more " + terminal.env["AUTHGUARD_SECRET"]
    told = terminal.told("status", "login", "vera", AUTHGUARD_SECRET=both)
    assert (told["failures"], told["blocked"]) == (5, True)
    assert [act["reason"] for act in told["acts"]] == ["before"]
    told = terminal.told(
        "unlock", "login", "--account", "vera", "--reason", "after", AUTHGUARD_SECRET=both
    )
    assert (told["actions"][0]["entries"], told["block_lifted"]) == (10, True)
    told = terminal.told("status", "login", "vera", AUTHGUARD_SECRET=both)
    assert (told["failures"], told["blocked"]) == (0, False)
    assert [act["reason"] for act in told["acts"]] == ["after", "before"]


def test_another_secret_frees_nothing(terminal: Terminal, fail: Callable[..., None]) -> None:
    """A62: whoever reaches the store without the app's secret finds nobody in it."""
    fail(5, client=CLIENT)
    other = "another-secret-of-32-bytes-or-even-more"
    result = terminal.run("unlock", "--account", "vera", AUTHGUARD_SECRET=other)
    assert result.exit_code == 3
    assert terminal.told("status", "login", "vera")["locked"] is True
