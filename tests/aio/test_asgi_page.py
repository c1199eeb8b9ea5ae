"""docs/asgi.md: the app on that page, run as printed by a real server."""

from __future__ import annotations

import ast
import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from authguard import AccountKey, Passwords
from authguard.testing import _free_port as free_port
from authguard.testing import embedded_valkey

from .conftest import a_guard, run, until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs/asgi.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.replace("\n  ", "\n"), re.DOTALL)
APP = re.findall(r"```python\n(# app\.py.*?)```", PAGE, re.DOTALL)[0]
SECRET = "a secret of the tests, 32 bytes or more"


class Site:
    """The app behind a real port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def login(self, name: object, password: object) -> http.client.HTTPResponse:
        """Try a name and a password."""
        return self.post(json.dumps({"name": name, "password": password}))

    def post(self, body: str) -> http.client.HTTPResponse:
        """Send a body; the answer's is read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", "/login", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.body = json.loads(answer.read())  # type: ignore[attr-defined]
        connection.close()
        return answer


@contextmanager
def a_site(folder: Path, store_url: str, deadline_ms: int = 10_000) -> Iterator[Site]:
    """Run the page's app; it must end in good order and complain of nothing."""
    patient = APP.replace("secret=secret)", f"secret=secret, deadline_ms={deadline_ms})")
    assert patient != APP
    (folder / "app.py").write_text(patient, encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-W", "always", "-m", "uvicorn", "app:app", "--port", str(port)]
    environment = os.environ | {"AUTHGUARD_STORE_URL": store_url, "AUTHGUARD_SECRET": SECRET}
    with (folder / "log").open("w+", encoding="utf-8") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, text=True
        )
        try:
            site = Site(port)
            started = threading.Event()
            for _ in range(600):
                try:
                    site.post("")
                except OSError:
                    started.wait(0.05)
                else:
                    break
            yield site
            server.send_signal(signal.SIGTERM)
            server.wait(20)
        finally:
            server.kill()
            server.wait()
        log.seek(0)
        said = log.read()
    assert "Application shutdown complete." in said, said
    assert not re.search("warning|error|traceback", said, re.IGNORECASE), said


def test_the_app_signs_in_refuses_and_says_when(tmp_path: Path, valkey_url: str) -> None:
    """docs/asgi.md over HTTP: 200, 401 for all that is wrong alike, 400, and 429 to the second."""
    with a_site(tmp_path, valkey_url) as site:
        right = site.login(" Vera ", "correct horse vera")
        assert (right.status, right.body) == (200, {"account": "vera"})
        wrong, unknown = site.login("vera", "wrong"), site.login("nobody", "wrong")
        assert (wrong.status, wrong.body) == (unknown.status, unknown.body)
        assert wrong.status == 401
        for body in ("", "[]", "7", '{"name": "vera"}', "[" * 100_000):
            assert site.post(body).status == 400
        for name, password in (("vera", 7), (7, "x"), ("vera", "x" * 2000), ("\ud800", "x")):
            assert site.login(name, password).status == 400
        assert [site.login("vera", "wrong").status for _ in range(4)] == [401] * 4
        refused = site.login("vera", "correct horse vera")
        assert refused.status == 429
        assert refused.getheader("Content-Type") == "application/problem+json"
        assert refused.getheader("Cache-Control") == "no-store"
        assert 890 <= int(refused.getheader("Retry-After")) <= 900
        assert refused.body["retry_after"] == int(refused.getheader("Retry-After"))


def test_parallel_guesses_are_counted_by_the_app(tmp_path: Path, valkey_url: str) -> None:
    """B123: of 30 parallel guesses at one name the app looks at five passwords."""
    with a_site(tmp_path, valkey_url) as site, ThreadPoolExecutor(30) as pool:
        statuses = list(pool.map(lambda _: site.login("vera", "wrong").status, range(30)))
    # Where the machine is too busy to hash at once, the attempt is given back: 503, and no guess.
    assert statuses.count(401) <= 5
    assert set(statuses) <= {401, 429, 503}
    assert statuses.count(401) + statuses.count(503) >= 5


def test_the_app_answers_503_while_the_store_is_away(tmp_path: Path) -> None:
    """Without the store every login is a 503 with Retry-After, and right again when it is back."""
    port = free_port()
    with a_site(tmp_path, f"valkey://127.0.0.1:{port}/0") as site:
        for _ in range(2):
            away = site.login("vera", "correct horse vera")
            assert away.status == 503
            assert 1 <= int(away.getheader("Retry-After")) <= 60
            with embedded_valkey(port):
                assert site.login("vera", "correct horse vera").status == 200


def test_the_pages_other_example_counts_by_the_key(valkey_url: str) -> None:
    """An account that was looked up before is counted by its key, an unknown one by its name."""
    code = compile(
        next(block for block in BLOCKS if "find_user" in block).replace("...", "seen(attempt)"),
        "asgi.md",
        "exec",
        ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    seen: list[Any] = []

    async def story() -> None:
        async def find_user(name: str) -> object:
            return SimpleNamespace(id="key-1") if name == "vera" else None

        async with a_guard(valkey_url) as guard:
            scope = {"guard": guard, "find_user": find_user, "address": "192.0.2.7"}
            scope |= {
                "AccountKey": AccountKey,
                "seen": lambda attempt: seen.append(attempt.account),
            }
            for name in ("vera", "Nobody"):
                await eval(code, scope | {"name": name})  # the block, with its awaits

    run(story())
    assert seen == ["key-1", "nobody"]


@pytest.mark.parametrize("slots", [1, 2])
def test_more_threads_than_slots_and_queue_refuse_at_once(slots: int) -> None:
    """As the page says: with so many threads a flood is refused in time, not queued."""
    queue = 3
    passwords = Passwords.cheapest_for_tests(slots=slots, queue=queue, wait_s=30)
    assert "ThreadPoolExecutor(passwords.slots + QUEUE + 1)" in APP
    held = threading.Event()

    class Slow:
        def verify(self, *_: object) -> bool:
            return held.wait(30)

    passwords._hasher = Slow()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        hashing = ThreadPoolExecutor(slots + queue + 1)
        tasks = [loop.run_in_executor(hashing, passwords.verify, "stored", "x") for _ in range(30)]
        refused = 30 - slots - queue
        await until(lambda: sum(task.done() for task in tasks) >= refused)
        held.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each).__name__ for each in ended].count("HashingUnavailable") == refused
        hashing.shutdown()

    run(story())
