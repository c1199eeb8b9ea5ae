"""
One part of the profile, in a process of its own; :mod:`bench.profile` starts it on a checkout.

Usage: ``PYTHONPATH=CHECKOUT python -P bench/profiled.py PART CHUNK CHECKOUT``. Each line on
standard input asks for a round; its figures are a line of JSON on standard output. It takes nothing
from the checkout but what is public, save for the finest stages, which are left out where they are
missing.

Time in sockets is taken at the socket. What a decision sends is recorded there too, and sent again
by the client library alone: what that spends outside of sockets is the library's, and the rest is
ours. Each way has a database of its own and is asked the same in the same order, so that all find
the same logs.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import random
import socket
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import valkey
from flask import Flask, request

import authguard
from authguard import Denied, Guard
from authguard.flask import AuthGuard, current_attempt
from authguard.stores.valkey import ValkeyStore
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECRET: Final = "a secret of the benchmark, 32 bytes or more"
ACCOUNTS, CLIENTS, WARM_UP = 5_000, 1_000, 12
LOGS: Final = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/15m"},
            {"name": "client", "by": ["client"], "sliding_log": "100/15m"},
            {"name": "pair", "by": ["account", "client"], "sliding_log": "10/15m"},
        ]
    }
}
#: Whether refusals can be remembered in the process here.
REMEMBERS: Final = "remember_refusals_ms" in inspect.signature(Guard.__init__).parameters


# What is asked. A part connects to a database and gives what asks once, by the number of the ask.


@cache
def who(number: int) -> dict[str, Any]:
    """Give an account and a client, made once; those below zero are the warm-up's."""
    chosen = random.Random(number)
    account, client = chosen.randrange(ACCOUNTS), chosen.randrange(CLIENTS)
    name = f"user{account}" if number >= 0 else f"warm{number}"
    return {"account": name, "client": f"10.{client // 250}.{client % 250}.7"}


def guard_of(store: Any, policies: Any, remember_ms: int = 0) -> Guard:
    """Make a guard; one that asks the store every time, if nothing else is said."""
    settings: dict[str, Any] = {"deadline_ms": 10_000} if isinstance(store, str) else {}
    if REMEMBERS:
        settings["remember_refusals_ms"] = remember_ms
    return Guard(store, secret=SECRET, policies=policies, **settings)


def deciding(guard: Guard) -> Callable[[int], None]:
    """Ask for the attempt of each number."""

    def ask(number: int) -> None:
        with contextlib.suppress(Denied):
            guard.attempt("login", **who(number))

    return ask


def repeated(url: str) -> Callable[[int], None]:
    """Ask for one account again and again: the warm-up fills its log."""
    guard = guard_of(url, LOGS, remember_ms=1_000)

    def ask(number: int) -> None:
        del number
        with contextlib.suppress(Denied):
            guard.attempt("login", account="flooded", client="203.0.113.9")

    return ask


def asking(app: Flask, password: str) -> Callable[[int], None]:
    """Send one JSON login as a WSGI server would, without a socket."""

    def ask(number: int) -> None:
        name = who(number)
        body = json.dumps({"username": name["account"], "password": password}).encode()
        parts = app(
            {
                "REQUEST_METHOD": "POST",
                "SCRIPT_NAME": "",
                "PATH_INFO": "/login",
                "QUERY_STRING": "",
                "CONTENT_TYPE": "application/json",
                "CONTENT_LENGTH": str(len(body)),
                "SERVER_NAME": "127.0.0.1",
                "SERVER_PORT": "8000",
                "SERVER_PROTOCOL": "HTTP/1.1",
                "REMOTE_ADDR": name["client"],
                "HTTP_HOST": "127.0.0.1:8000",
                "wsgi.version": (1, 0),
                "wsgi.url_scheme": "http",
                "wsgi.input": io.BytesIO(body),
                "wsgi.errors": sys.stderr,
                "wsgi.multithread": True,
                "wsgi.multiprocess": True,
                "wsgi.run_once": False,
            },
            lambda *_: io.BytesIO().write,
        )
        b"".join(parts)
        parts.close()  # type: ignore[attr-defined]

    return ask


def app_of(url: str | None) -> Flask:
    """Make an app with one login; protected, if there is a store."""
    app = Flask("profiled")

    def login() -> tuple[dict[str, str], int]:
        fields = request.get_json()
        if fields["password"] != "right":
            return {"error": "wrong name or password"}, 401
        if url is not None:
            current_attempt.succeed()
        return {"welcome": fields["username"]}, 200

    if url is None:
        app.post("/login")(login)
        return app
    app.config["AUTHGUARD_STORE_URL"] = url
    app.config["AUTHGUARD_SECRET"] = SECRET
    app.config["AUTHGUARD_POLICY"] = LOGS
    app.config["AUTHGUARD_DEADLINE_MS"] = 10_000
    if REMEMBERS:
        app.config["AUTHGUARD_REMEMBER_REFUSALS_MS"] = 0
    guard = AuthGuard(app, check_at_start=False)
    app.post("/login")(guard.protect("login", account="username")(login))
    return app


#: How each part connects; and, of an app, the password that it is sent.
PARTS: Final[dict[str, tuple[Callable[[str], Callable[[int], None]], str | None]]] = {
    "logs": (lambda url: deciding(guard_of(url, LOGS)), None),
    "profile": (lambda url: deciding(guard_of(url, None)), None),
    "known": (repeated, None),
    "wrong": (lambda url: asking(app_of(url), "wrong"), "wrong"),
    "right": (lambda url: asking(app_of(url), "right"), "right"),
}


# What is sent, and the time in sockets.


@contextlib.contextmanager
def at_sockets(around: Callable[[Any, socket.socket, Any], Any], *names: str) -> Iterator[None]:
    """Have these methods of all sockets run by a function of ours, within a ``with`` block."""

    def run_by(name: str) -> Any:
        method = getattr(socket.socket, name)
        return lambda self, *given: around(method, self, *given)

    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(socket.socket, name, run_by(name)))
        yield


def recorded(ask: Callable[[int], None], numbers: Sequence[int]) -> list[list[bytes]]:
    """Ask each; give the commands that it sent, by whatever socket."""
    kept: list[bytes] = []

    def keep(method: Any, own: socket.socket, data: bytes) -> Any:
        kept.append(bytes(data))
        return method(own, data)

    sent = []
    with at_sockets(keep, "sendall", "send"):
        for number in numbers:
            kept.clear()
            ask(number)
            every = commands(b"".join(kept))
            sent.append([it for it in every if b"EVALSHA" in it[:20]])  # no connection's greeting
    return sent


@dataclass
class Timed:
    """What a way of asking took: microseconds of each ask, and of them those in sockets."""

    all_us: list[float] = field(default_factory=list)
    socket_us: list[float] = field(default_factory=list)
    cpu_us: float = 0.0

    @classmethod
    def of(cls, way: Callable[[int], object], numbers: Sequence[int]) -> Timed:
        """Ask each number."""
        timed, clock, inside_ns = cls(), time.perf_counter_ns, 0

        def inside(method: Any, own: socket.socket, *given: Any) -> Any:
            nonlocal inside_ns
            begin = clock()
            try:
                return method(own, *given)
            finally:
                inside_ns += clock() - begin

        with at_sockets(inside, "sendall", "send", "recv", "recv_into"):
            cpu_ns = time.process_time_ns()
            for number in numbers:
                inside_ns, begin = 0, clock()
                way(number)
                timed.all_us.append((clock() - begin) / 1_000)
                timed.socket_us.append(inside_ns / 1_000)
            timed.cpu_us = (time.process_time_ns() - cpu_ns) / 1_000 / len(numbers)
        return timed


def commands(stream: bytes) -> Iterator[bytes]:
    """Cut what was sent into commands."""
    at = 0
    while at < len(stream):
        begin = at
        _, at = words(stream, at)
        yield stream[begin:at]


def words(stream: bytes, at: int) -> tuple[list[bytes], int]:
    """Read one command; tell where the next begins."""
    line = stream.index(b"\r\n", at)
    found = []
    count, at = int(stream[at + 1 : line]), line + 2
    for _ in range(count):
        line = stream.index(b"\r\n", at)
        end = line + 2 + int(stream[at + 1 : line])
        found.append(stream[line + 2 : end])
        at = end + 2
    return found, at


def as_a_user_would(command: bytes) -> tuple[Any, ...]:
    """Give a recorded EVALSHA's arguments; what is text as text."""
    (_, sha, keys, *others), _ = words(command, 0)
    return sha.decode(), int(keys), *(it.decode() if it.isascii() else it for it in others)


# Stages of our own, one by one. A PING stands for each call: while a process waits its core does
# other things, and what runs next is slower than in a loop of nothing else.


class Canned:
    """A store of one's own that answers the same to all, and notes when it did what."""

    spread = False

    def __init__(self, reply: object, ping: Callable[[], object]) -> None:
        self._reply, self._ping = reply, ping
        self.asked_ns = self.heard_ns = self.read_ns = 0

    def run(self, call: Any) -> Any:
        """Wait for a PING, and read the reply."""
        self.asked_ns = time.perf_counter_ns()
        self._ping()
        self.heard_ns = time.perf_counter_ns()
        answer = call.read(self._reply)
        self.read_ns = time.perf_counter_ns()
        return answer

    def one_deadline(self) -> Any:
        """Have none."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Have nothing to close."""


class Stages:
    """Times our own Python between its seams, and its finer steps where this checkout has them."""

    def __init__(self, url: str, policies: Any, ping: Callable[[], object]) -> None:
        replies: list[object] = []
        self._ping = ping

        class Asking(ValkeyStore):
            def run(self, call: Any) -> Any:
                as_it_came = (call.script, call.keys, call.args, lambda reply: reply, call.dated)
                replies.append(super().run(type(call)(*as_it_came)))
                return call.read(replies[0])

        guard_of(Asking(url, deadline_ms=10_000), policies).attempt("login", **who(0))
        self._store = Canned(replies[0], ping)
        # Two, so that what one remembers of an account does not shorten the other's way.
        self._guard, self._other = (guard_of(self._store, policies) for _ in range(2))

    def between(self, numbers: Sequence[int]) -> dict[str, float]:
        """Give microseconds of what lies before, between and behind the call."""
        took: dict[str, list[float]] = {"before": [], "reading": [], "behind": []}
        for number in numbers:
            claims = who(number)
            begin = time.perf_counter_ns()
            self._guard.attempt("login", **claims)
            end = time.perf_counter_ns()
            took["before"].append(self._store.asked_ns - begin)
            took["reading"].append(self._store.read_ns - self._store.heard_ns)
            took["behind"].append(end - self._store.read_ns)
        return {name: statistics.median(each) / 1_000 for name, each in took.items()}

    def finer(self, numbers: Sequence[int]) -> dict[str, float]:
        """Give microseconds of each finer step, up to the first that is not there."""
        found: dict[str, float] = {}
        guard: Any = self._other
        with contextlib.suppress(ImportError, AttributeError, TypeError):
            from authguard._core import calls  # noqa: PLC0415 (of some checkouts)
            from authguard._subjects import Claims  # noqa: PLC0415

            policy = guard.policy("login")
            claims = [Claims(**who(number)) for number in numbers]
            known, found["claims"] = self._each(
                lambda it: guard._subjects.known(policy, it), claims
            )
            pairs = list(zip(claims, known, strict=True))
            shapes, found["limits"] = self._each(lambda it: guard._applying("login", *it), pairs)
            shape = shapes[0]
            bound, found["keys"] = self._each(
                lambda it: guard._engine.bind(shape, it.pseudonyms).bindings[0], known
            )
            _, found["call"] = self._each(
                lambda it: calls.acquire(it, cost=1, attempt_id=b"12345", now_ms=None), bound
            )
        return found

    def _each(self, step: Callable[[Any], Any], inputs: Sequence[Any]) -> tuple[list[Any], float]:
        outputs, took = [], []
        for it in inputs:
            self._ping()
            begin = time.perf_counter_ns()
            outputs.append(step(it))
            took.append(time.perf_counter_ns() - begin)
        return outputs, statistics.median(took) / 1_000


# A round.


class Part:
    """A part of the profile on a server of its own."""

    def __init__(self, name: str, port: int, url: str) -> None:
        connect, self._password = PARTS[name]
        databases = [url.removesuffix("0") + f"{number}" for number in range(4)]
        self._chosen = random.Random(29)
        self._recorder, self._whole = connect(databases[2]), connect(databases[0])
        self._library: Any = valkey.Valkey(port=port, db=1)  # its hints are of both colours
        self._unprotected = asking(app_of(None), self._password) if self._password else None
        self._stages = None
        if name in ("logs", "profile"):
            with contextlib.suppress(AttributeError, TypeError, IndexError):
                policies = LOGS if name == "logs" else None
                self._stages = Stages(databases[3], policies, self._library.ping)
        self._no_op = self._library.script_load("return 1")
        self._next = 0
        self._recorder(-WARM_UP)  # connects, loads what it needs
        warm_up = range(1 - WARM_UP, 0)
        for command in (it for of in recorded(self._recorder, warm_up) for it in of):
            self._library.evalsha(*as_a_user_would(command))
        for number in range(-WARM_UP, 0):
            self._whole(number)

    def round(self, chunk: int) -> dict[str, float]:
        """Ask for the next numbers in every way, in random order; give medians, microseconds."""
        numbers = range(self._next, self._next + chunk)
        self._next += chunk
        sent = recorded(self._recorder, numbers)
        arguments = [[as_a_user_would(command) for command in of] for of in sent]
        evalsha, ping = self._library.evalsha, self._library.ping
        like = next((of[0][1:] for of in arguments if of), (0,))
        figures: dict[str, float] = {"commands": sum(map(len, sent)) / chunk}
        ways: dict[str, Callable[[int], object]] = {
            "ping": lambda _: ping(),
            "no_op": lambda _: evalsha(self._no_op, *like),
            "whole": self._whole,
            "library": lambda number: [evalsha(*each) for each in arguments[number - numbers[0]]],
        }
        if self._unprotected is not None:
            ways["unprotected"] = self._unprotected
        for name in self._chosen.sample(list(ways), len(ways)):
            self._library.config_resetstat()
            timed = Timed.of(ways[name], numbers)
            figures[name] = statistics.median(timed.all_us)
            figures[f"{name}_socket"] = statistics.median(timed.socket_us)
            figures[f"{name}_cpu"] = timed.cpu_us
            if name == "whole":
                figures |= self._server(chunk)
        if self._stages is not None:
            figures |= self._stages.between(numbers) | self._stages.finer(numbers)
        return figures

    def _server(self, chunk: int) -> dict[str, float]:
        """Give the server's own microseconds for each ask: of scripts, and of commands in them."""
        stats: dict[str, Any] = self._library.info("commandstats")
        spent = {name.removeprefix("cmdstat_"): it["usec"] / chunk for name, it in stats.items()}
        scripts = spent.pop("evalsha", 0.0)
        inside = sum(us for name, us in spent.items() if "|" not in name and name != "info")
        return {"scripts": scripts, "inside": inside}


def main() -> None:
    """Answer each line with a round."""
    name, chunk, checkout = sys.argv[1:]
    if not Path(authguard.__file__).is_relative_to(checkout):
        raise SystemExit(f"{checkout}: no authguard there")
    with embedded_valkey() as server:
        part = Part(name, server.port, server.url)
        for _ in sys.stdin:
            print(json.dumps(part.round(int(chunk))), flush=True)


if __name__ == "__main__":
    main()
