"""What scripts touch, as the server's own MONITOR tells it: declared keys alone, none for ever."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import valkey

from authguard import Denied
from authguard.identity import read_phone
from authguard.one_time import Holder
from authguard.stores.valkey import ValkeyStore
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from authguard.testing import EmbeddedValkey

LUA = Path(__file__).parents[2] / "lua"
FORM = re.compile(rb"rl:v1:\{[A-Za-z0-9_-]{8}\}[A-Za-z0-9_-]{22}[!~+]?")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"')
#: Asks which commands the server refuses, of every node alike, on a key that isn't there: so it
#: can't declare it. It decides nothing and counts nothing.
ASKS_THE_SERVER = "needs"

#: Every algorithm, with everything that adds a key to it.
POLICY: dict[str, Any] = {
    "login": {
        "limits": [
            {"name": "pair", "by": ["account", "client"], "sliding_log": "3/15m"},
            {
                "name": "account",
                "by": ["account"],
                "sliding_log": "4/15m",
                "lockout": ["15m", "1h"],
            },
            {"name": "client", "by": ["client"], "sliding_log": "30/15m", "count_refused": True},
            {"name": "network", "by": ["network"], "sliding_window_counter": "99/15m"},
            {"name": "spray", "by": ["client"], "distinct": "account", "limit": "20/1h"},
            {"name": "day", "by": ["account"], "fixed_window": "50/1d", "zone": "Europe/Oslo"},
            {"name": "all", "by": ["global"], "token_bucket": "99/1s", "burst": 99},
            {
                "name": "turn",
                "by": ["global"],
                "leaky_bucket": "99/1s",
                "queue": 99,
                "elastic": True,
            },
        ]
    },
    "otp.send": {
        "limits": [
            {"name": "cooldown", "by": ["account"], "cooldown": ["1s", "2s"]},
            {"name": "client", "by": ["client"], "sliding_log": "30/1h"},
            {"name": "range", "by": ["number_range"], "conversion": "10/50", "lockout": "24h"},
        ]
    },
}
WHO: dict[str, Any] = {"account": "vera", "client": "203.0.113.9"}
PHONE = read_phone("+14155550101")
HOLDER = Holder("vera", True, "sign-in", channel="sms")  # type: ignore[arg-type]


def verbs() -> set[str]:
    """Name the verbs: the files that say what their ARGV are."""
    texts = {path.stem: path.read_text() for path in LUA.glob("*.lua")}
    return {name for name, text in texts.items() if "\n-- KEYS" in text or "\n-- ARGV" in text}


def guess(guard: Guard) -> None:
    """Fail until limits refuse, one lock and one counted refusal among them."""
    for _ in range(3):
        guard.attempt("login", **WHO)
    guard.attempt("login", account="vera", client="198.51.100.7")
    for client in (WHO["client"], "198.51.100.7"):
        with pytest.raises(Denied):
            guard.attempt("login", account="vera", client=client)


def look(guard: Guard) -> None:
    """Ask what would be decided, with all of that counted."""
    guess(guard)
    assert not guard.peek("login", **WHO).allowed


def succeed(guard: Guard) -> None:
    """Sign in after a failure, and take another attempt back."""
    guard.attempt("login", **WHO)
    guard.attempt("login", **WHO).succeed()
    guard.attempt("login", **WHO).release()


def send(guard: Guard) -> None:
    """Send a message, and tell what became of it."""
    guard.attempt("otp.send", **WHO, destination=PHONE)
    guard.message("otp.send", destination=PHONE, message_id=b"five!")
    guard.message_over("otp.send", destination=PHONE, message_id=b"five!", entered=True)


def use_a_code(guard: Guard) -> None:
    """Issue a code twice, look at it, enter a wrong one and the right one."""
    guard.one_time.issue_code(HOLDER, digits=6, life_ms=60_000)
    challenge, code = guard.one_time.issue_code(HOLDER, digits=6, life_ms=60_000)
    holder = guard.one_time.holder(challenge)
    assert holder is not None
    assert not guard.one_time.take_code(holder, challenge, "x")
    assert guard.one_time.take_code(holder, challenge, code)


def use_a_link(guard: Guard) -> None:
    """Issue a link, look whether it is live, and follow it."""
    token = guard.one_time.issue_link(HOLDER, bound_to=("hash",), life_ms=60_000)
    holder = guard.one_time.holder(token)
    assert holder is not None
    assert guard.one_time.is_live(holder, token, bound_to=("hash",))
    assert guard.one_time.take_link(holder, token, bound_to=("hash",))


def operate(guard: Guard) -> None:
    """Do all that an operator can, on logs and a lock that are there."""
    guess(guard)
    guard.override("login", "account", account="vera", to="9/15m", for_ms=60_000)
    guard.load(0.5)
    guard.usage("login", **WHO)
    guard.attempt("login", account="omar", client="198.51.100.7")
    guard.block(account="vera", for_ms=60_000)
    guard.block(**WHO)
    with pytest.raises(Denied):
        guard.attempt("login", **WHO)
    guard.unblock(account="vera")
    guard.pardon("login", account="vera")
    guard.recover("login", **WHO)
    guard.clear("login", **WHO)
    guard.clear("login", client="203.0.113.9")
    guard.current_load()
    guard.lift_override("login", "account", account="vera")


def guess_on_a_cluster(guard: Guard) -> None:
    """Do the same group by group, as where keys are spread over nodes."""
    with patch.object(ValkeyStore, "spread", new=True):
        guess(guard)


def look_for_lost_data(guard: Guard) -> None:
    """Leave the mark that only a loss of data takes away."""
    guard._mark._due_s = 0.0
    guard.attempt("login", **WHO)


#: What a guard does, and the verbs that it takes.
SCENES: dict[str, tuple[Callable[[Guard], None], set[str]]] = {
    "guesses": (guess, {"acquire"}),
    "a look": (look, {"acquire", "peek"}),
    "guesses on a cluster": (guess_on_a_cluster, {"acquire", "settle", "refuse", "peek", "load"}),
    "a look for lost data": (look_for_lost_data, {"acquire", "mark"}),
    "a sign-in": (succeed, {"acquire", "settle"}),
    "a message": (send, {"acquire", "settle"}),
    "a code": (use_a_code, {"put", "read", "take"}),
    "a link": (use_a_link, {"put", "read", "take"}),
    "an operator": (
        operate,
        {
            "acquire",
            "inspect",
            "set_block",
            "override",
            "load",
            "put",
            "pardon",
            "recover",
            "clear",
        },
    ),
}


@dataclass(frozen=True)
class Said:
    """One script call, as MONITOR told it, and the commands that the script ran."""

    words: list[bytes]
    inner: list[list[bytes]]

    @property
    def keys(self) -> list[bytes]:
        """Its KEYS, by its own count of them."""
        return self.words[3 : 3 + int(self.words[2])]

    @property
    def arguments(self) -> list[bytes]:
        """Its ARGV."""
        return self.words[3 + int(self.words[2]) :]


class Listener:
    """A connection on which the server tells every command that it runs."""

    def __init__(self, server: EmbeddedValkey, client: valkey.Valkey) -> None:
        self._client = client
        self._told = valkey.Connection(port=server.port, socket_timeout=10)
        self._told.connect()
        self._told.send_command("MONITOR")
        assert self._told.read_response() == b"OK"

    def heard(self) -> list[Said]:
        """Give the script calls since it began, and end."""
        self._client.echo("that is all")
        said: list[Said] = []
        while True:
            line = self._told.read_response().decode()
            where, _, rest = line.partition("] ")
            words = [ast.literal_eval(f"b{word}") for word in WORD.findall(rest)]
            if words == [b"ECHO", b"that is all"]:
                self._told.disconnect()
                return said
            if where.endswith(" lua"):
                said[-1].inner.append(words)
            elif words[0] in (b"EVAL", b"EVALSHA"):
                said.append(Said(words, []))

    def keys_in(self, words: list[bytes]) -> list[bytes]:
        """Ask the server itself which words of a command are keys."""
        try:
            keys: Any = self._client.command_getkeys(*words)
        except valkey.ResponseError:  # it has none
            return []
        return [key.encode() for key in keys]


@pytest.fixture
def listener(valkey_server: EmbeddedValkey, client: valkey.Valkey) -> Listener:
    """Begin to listen, on a server that knows no script yet."""
    client.script_flush()
    return Listener(valkey_server, client)


@pytest.mark.parametrize("secrets", [1, 2])
@pytest.mark.parametrize("scene", SCENES)
def test_a_script_touches_its_own_keys_alone(
    guard_factory: Callable[..., Guard],
    client: valkey.Valkey,
    listener: Listener,
    scene: str,
    secrets: int,
) -> None:
    """B118, B119: inner commands name no key that isn't in KEYS, and KEYS hold names alone."""
    act, wanted = SCENES[scene]
    guard = guard_factory(policies=POLICY, secret=[SECRET, SECRET[::-1]][:secrets])
    act(guard)
    said = listener.heard()
    texts = [call.words[1].decode() for call in said if call.words[0] == b"EVAL"]
    ran = {verb for verb in verbs() for text in texts if text.endswith(source(verb))}
    assert ran >= wanted
    for call in said:
        assert listener.keys_in(call.words) == call.keys  # numkeys is right
        assert [key for key in call.keys if not FORM.fullmatch(key)] == []
        assert len(set(call.keys)) == len(call.keys)
        assert [it for it in call.arguments if b"rl:v1:" in it] == []
        for command in call.inner:
            assert command[0] in (b"TIME", b"GET", b"SET", b"DEL", b"PTTL")
            touched = listener.keys_in(command)
            assert bool(touched) is (command[0] != b"TIME")
            assert set(touched) <= set(call.keys)
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []


def source(verb: str) -> str:
    """Give a verb's own file, which ends its script."""
    return (LUA / f"{verb}.lua").read_text()


def test_no_verb_is_left_out(guard_factory: Callable[..., Guard], listener: Listener) -> None:
    """B118: what the scenes above listen to are all the verbs there are, save drop, shown here."""
    guard = guard_factory(policies=POLICY, secret=[SECRET, SECRET[::-1]])
    guard.one_time.issue_code(HOLDER, digits=6, life_ms=60_000)
    dropping = [
        call for call in listener.heard() if call.words[1].endswith(source("drop").encode())
    ]
    assert [len(call.keys) for call in dropping] == [1]
    assert [call.inner for call in dropping] == [[[b"DEL", *call.keys] for call in dropping]]
    heard = {verb for _, wanted in SCENES.values() for verb in wanted} | {"drop"}
    assert verbs() - {ASKS_THE_SERVER} == heard
