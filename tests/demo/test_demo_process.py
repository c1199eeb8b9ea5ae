"""The demo as a process: what it prints, what it answers, and how it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Demo

ROOT = Path(__file__).parents[2]


class TestReady:
    """The text and the ready line."""

    def test_answers_once_it_says_ready(self, demo: Demo) -> None:
        """The ready line comes last, names the address, and the demo answers there."""
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", demo.url)
        assert demo.visitor().get("/").status == 200

    def test_greeting_names_addresses_and_accounts(self, demo: Demo) -> None:
        """A newcomer finds addresses and accounts with passwords in the terminal."""
        for text in (f"{demo.url}/auth/login", f"{demo.url}/outbox", "+14155550103"):
            assert text in demo.greeting
        for name in ("vera", "omar", "tess", "dora"):
            assert f"correct horse {name}" in demo.greeting

    @pytest.mark.skipif(shutil.which("curl") is None, reason="no curl to run the lines with")
    def test_printed_commands_show_what_they_promise(self, start_demo: Callable[..., Demo]) -> None:
        """The curl lines of the greeting, run as they stand, end in a 429 with its wait."""
        demo = start_demo()
        lines = re.search(r"    for i in .*?; done\n", demo.greeting, re.DOTALL)
        shown = subprocess.run(
            ["bash", "-c", lines[0]], capture_output=True, text=True, timeout=60, check=True
        ).stdout.split("\n")
        statuses = [line.split()[1] for line in shown if line.startswith("HTTP")]
        assert statuses == ["401"] * 5 + ["429"]
        assert re.fullmatch(r"(?i)retry-after: \d+\s*", shown[-2])

    def test_ipv6_host(self, start_demo: Callable[..., Demo]) -> None:
        """An IPv6 host is taken, and its address is printed in brackets."""
        demo = start_demo("--host", "::1")
        assert re.fullmatch(r"http://\[::1\]:\d+", demo.url)
        assert demo.visitor().login("vera", "correct horse vera").status == 200


class TestSignIn:
    """The sign-in over HTTP."""

    @pytest.mark.parametrize(
        "identifier", ["vera", " VERA ", "Vera@Example.TEST", "+14155550101", "+1 (415) 555-0101"]
    )
    def test_every_name_of_an_account_signs_in(self, demo: Demo, identifier: str) -> None:
        """Username, e-mail and phone sign in, whatever their case and surrounding blanks."""
        vera = demo.visitor("198.51.100.1")
        reply = vera.login(identifier, "correct horse vera")
        assert (reply.status, reply.json) == (200, {"status": "authenticated"})
        assert vera.get("/auth/me", "application/json").json == {"username": "vera"}

    def test_form_signs_in_and_out(self, demo: Demo) -> None:
        """The form leads to a page with the name on it, and signing out ends the session."""
        vera = demo.visitor("198.51.100.2")
        reply = vera.post_form("/auth/login", identifier="vera", password="correct horse vera")
        assert (reply.status, reply.headers["Location"]) in ((302, "/auth/me"), (303, "/auth/me"))
        assert "vera" in vera.get("/auth/me").body
        assert vera.post_form("/auth/logout").status in (302, 303)
        assert vera.get("/auth/me", "application/json").status == 401

    def test_wrong_unknown_and_disabled_answer_alike(self, demo: Demo) -> None:
        """A wrong password, a name that never existed and a disabled account answer the same."""
        tries = {
            "vera": "a guess",
            "ghost": "a guess",
            "ghost@example.test": "correct horse vera",
            "dora": "correct horse dora",
        }
        somebody = demo.visitor("198.51.100.3")
        replies = [somebody.login(name, password) for name, password in tries.items()]
        assert [reply.status for reply in replies] == [401] * 4
        assert len({reply.body for reply in replies}) == 1
        assert len({tuple(sorted(set(reply.headers) - {"Date"})) for reply in replies}) == 1

    def test_all_names_share_one_budget(self, demo: Demo) -> None:
        """Guesses by username, e-mail and phone count together: the sixth is refused."""
        names = ["omar", "OMAR", "omar@example.test", "Omar@Example.Test", "+14155550102"]
        somebody = demo.visitor("198.51.100.4")
        assert [somebody.login(name, "a guess").status for name in names] == [401] * 5
        reply = somebody.login("omar", "correct horse omar")
        assert reply.status == 429
        assert int(reply.headers["Retry-After"]) >= 1
        page = somebody.post_form("/auth/login", identifier="omar", password="a guess")
        assert page.status == 429
        assert f'data-retry-after="{page.headers["Retry-After"]}"' in page.body
        assert 'value="omar"' in page.body
        assert "a guess" not in page.body

    def test_scripts_are_told_of_wrong_routes_in_json(self, demo: Demo) -> None:
        """A wrong path or method is problem+json where JSON is asked for, else a page."""
        visitor = demo.visitor()
        for reply, status in (
            (visitor.get("/auth/nowhere", "application/json"), 404),
            (visitor.post_json("/auth/me"), 405),
        ):
            assert (reply.status, reply.json["status"]) == (status, status)
            assert reply.headers["Content-Type"] == "application/problem+json"
        assert "<html" in visitor.get("/auth/nowhere").body

    def test_outbox_is_empty_and_says_why(self, demo: Demo) -> None:
        """The outbox has a page and a list for scripts; both are honest about being empty."""
        assert "Nothing sends any yet" in demo.visitor().get("/outbox").body
        assert demo.visitor().get("/outbox.json").json == []

    def test_frozen_store_lets_nobody_in(self, start_demo: Callable[..., Demo]) -> None:
        """The printed kill -STOP makes even the right password a 503, and kill -CONT mends it."""
        demo = start_demo()
        pid = int(re.search(r"kill -STOP (\d+)", demo.greeting)[1])
        vera = demo.visitor()
        os.kill(pid, signal.SIGSTOP)
        try:
            reply = vera.login("vera", "correct horse vera")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert reply.status == 503
        assert vera.get("/auth/me", "application/json").status == 401
        assert vera.login("vera", "correct horse vera").status == 200


class TestWorkers:
    """More than one worker."""

    def test_workers_share_one_budget(self, start_demo: Callable[..., Demo]) -> None:
        """A hundred guesses at once on two workers: five are looked at, the rest refused."""
        demo = start_demo("--workers", "2")
        with ThreadPoolExecutor(100) as pool:
            guesses = [pool.submit(demo.visitor().login, "omar", "a guess") for _ in range(100)]
        statuses = [guess.result().status for guess in guesses]
        assert statuses.count(401) == 5
        assert statuses.count(429) == 95

    def test_a_store_that_is_down_lets_no_worker_guess(
        self, start_demo: Callable[..., Demo]
    ) -> None:
        """B048: 50 right passwords on 4 workers are 50 x 503; with the store back, 200."""
        with embedded_valkey() as server:
            demo = start_demo("--workers", "4", "--valkey-url", server.url)
            assert demo.visitor().login("vera", "correct horse vera").status == 200
        with ThreadPoolExecutor(50) as pool:
            tries = [
                pool.submit(demo.visitor().login, "vera", "correct horse vera") for _ in range(50)
            ]
        replies = [reply.result() for reply in tries]
        assert [reply.status for reply in replies] == [503] * 50
        assert all(int(reply.headers["Retry-After"]) >= 1 for reply in replies)
        assert demo.visitor().get("/outbox").status == 200
        with embedded_valkey(server.port):
            assert demo.visitor().login("vera", "correct horse vera").status == 200

    def test_session_holds_on_every_worker(self, start_demo: Callable[..., Demo]) -> None:
        """Whoever signed in on one worker is known to the others."""
        demo = start_demo("--workers", "2")
        vera = demo.visitor()
        assert vera.login("vera", "correct horse vera").status == 200
        assert {vera.get("/auth/me").status for _ in range(10)} == {200}
