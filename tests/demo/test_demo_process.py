"""The demo as a process: what it prints, what it answers, and how it ends."""

from __future__ import annotations

import json
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


def printed(demo: Demo, first: str, last: str) -> str:
    """Find the commands of the greeting from one text to another."""
    found = re.search(
        rf"^    {re.escape(first)}.*?{re.escape(last)}$", demo.greeting, re.MULTILINE | re.DOTALL
    )
    assert found is not None, demo.greeting
    return found[0]


def run(commands: str) -> str:
    """Run commands in a shell, where a person would; give what they print."""
    return subprocess.run(
        ["bash", "-c", commands], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout


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

    def test_ipv6_host(self, start_demo: Callable[..., Demo]) -> None:
        """An IPv6 host is taken, and its address is printed in brackets."""
        demo = start_demo("--host", "::1")
        assert re.fullmatch(r"http://\[::1\]:\d+", demo.url)
        assert demo.visitor().login("vera", "correct horse vera").status == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl to run the lines with")
class TestPrintedCommands:
    """The commands of the greeting, run as they stand: what they show is what they promise."""

    def test_guesses_end_in_a_wait(self, start_demo: Callable[..., Demo]) -> None:
        """Five guesses are answered; the sixth is a 429 with its wait."""
        demo = start_demo()
        shown = run(printed(demo, "for i in", "; done"))
        statuses = [line.split()[1] for line in shown.splitlines() if line.startswith("HTTP")]
        assert statuses == ["401"] * 5 + ["429"]
        assert re.fullmatch(r"(?i)retry-after: \d+\s*", shown.splitlines()[-1])

    def test_code_signs_in(self, start_demo: Callable[..., Demo]) -> None:
        """A code is sent, read in the outbox and given back, and signs in."""
        demo = start_demo()
        shown = run(printed(demo, "ask()", '}"'))
        assert json.loads(shown) == {"status": "authenticated"}

    def test_lock_and_its_two_ways_out(self, start_demo: Callable[..., Demo]) -> None:
        """Omar is locked out; his known browser gets in all the same, another by his mail."""
        demo = start_demo()
        browser, other = demo.visitor(), demo.visitor()
        assert browser.login("omar", "correct horse omar").status == 200
        assert browser.post_json("/auth/logout").status == 200

        shown = run(printed(demo, "for a in", "; echo"))
        assert shown.split() == ["401"] * 10 + ["429"] * 5
        assert other.login("omar", "correct horse omar").status == 429
        assert browser.login("omar", "correct horse omar").status == 200

        mails = [sent for sent in other.get("/outbox.json").json if sent["kind"] == "unlock"]
        assert [mail["to"] for mail in mails] == ["omar@example.test"]
        assert other.post_json("/auth/unlock", token=mails[0]["token"]).status == 200
        assert other.login("omar", "correct horse omar").status == 200

    @pytest.mark.slow
    def test_operators_commands_speak_to_this_run(self, start_demo: Callable[..., Demo]) -> None:
        """They work from the checkout, through a file that nobody else can read."""
        demo = start_demo()
        commands = printed(demo, ". /", "--account omar")
        file = Path(commands.split()[1])
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        for _ in range(6):
            demo.visitor().login("omar", "a guess")
        assert demo.visitor().login("omar", "correct horse omar").status == 429
        run(f"set -e\n{commands}")
        assert demo.visitor().login("omar", "correct horse omar").status == 200


class TestOutbox:
    """The messages that would have gone out."""

    def test_is_empty_at_first(self, start_demo: Callable[..., Demo]) -> None:
        """A fresh demo has sent nothing, and says so on the page and to scripts."""
        visitor = start_demo().visitor()
        assert "No messages" in visitor.get("/outbox").body
        assert visitor.get("/outbox.json").json == []

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_shows_a_message_once_the_answer_is_there(
        self, start_demo: Callable[..., Demo], workers: str
    ) -> None:
        """Whoever has the answer finds the message, though it is sent in the background."""
        demo = start_demo("--workers", workers)
        for name, channel, to in (
            ("vera", "sms", "+14155550101"),
            ("omar", "email", "omar@example.test"),
        ):
            fields = {"identifier": name, "channel": channel}
            assert demo.visitor().post_json("/auth/otp/send", **fields).status == 202
            newest = demo.visitor().get("/outbox.json").json[0]
            assert set(newest) == {
                *("kind", "channel", "to", "subject", "body", "code", "token", "sent_at")
            }
            assert (newest["kind"], newest["channel"], newest["to"]) == ("code", channel, to)
            assert newest["code"] in newest["body"]
            assert newest["token"] is None
            page = demo.visitor().get("/outbox")
            assert f"<code>{newest['code']}</code>" in page.body
            assert page.headers["Cache-Control"] == "no-store"

    def test_second_factor_is_in_it(self, start_demo: Callable[..., Demo]) -> None:
        """The password of tess leads to a code for her phone, and the code signs her in."""
        tess = start_demo().visitor()
        reply = tess.login("tess", "correct horse tess")
        assert (reply.status, reply.json["status"]) == (200, "otp_required")
        assert tess.get("/auth/me", "application/json").status == 401
        (sent,) = tess.get("/outbox.json").json
        assert (sent["channel"], sent["to"]) == ("sms", "+14155550103")
        challenge = reply.json["challenge"]
        reply = tess.post_json("/auth/otp/verify", challenge=challenge, code=sent["code"])
        assert (reply.status, reply.json) == (200, {"status": "authenticated"})
        assert tess.get("/auth/me", "application/json").json == {"username": "tess"}

    def test_link_leads_into_this_demo(self, start_demo: Callable[..., Demo]) -> None:
        """The link of a mail begins with the address that the demo printed, and opens."""
        demo = start_demo()
        visitor = demo.visitor()
        assert visitor.post_json("/auth/password/forgot", identifier="vera").status == 202
        link = re.search(r'<a href="([^"]*token=[^"]*)">', visitor.get("/outbox").body)[1]
        assert link.startswith(f"{demo.url}/auth/password/reset")
        assert visitor.get(link.removeprefix(demo.url)).status == 200


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
        assert statuses.count(401) == 5, statuses
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

    @pytest.mark.slow
    def test_session_holds_on_every_worker(self, start_demo: Callable[..., Demo]) -> None:
        """Whoever signed in on one worker is known to the others."""
        demo = start_demo("--workers", "2")
        vera = demo.visitor()
        assert vera.login("vera", "correct horse vera").status == 200
        assert {vera.get("/auth/me").status for _ in range(10)} == {200}
