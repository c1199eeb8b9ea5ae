"""
Web workers in processes of their own, for tests that need several, or one whose clock is wrong.

A worker, which is this file run as a program, is a Flask app on the blueprint of the tests'
accounts, whose real hashes a spy counts. Each line of its input is JSON, an order: at an instant of
the machine's monotonic clock, which no offset moves, so many requests are sent at once, each from a
thread. Each line of its output is JSON: the answers as [status, Retry-After], how many passwords
were looked at, and what its own clock shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask
from freezegun import freeze_time

from authguard.flask import AuthGuard
from tests.flask.conftest import SECRET, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Told = dict[str, Any]

ROOT = Path(__file__).parents[2]


class Worker:
    """A web worker, as the test that has started it sees it."""

    def __init__(self, **given: Any) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                json.dumps(given),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def ready(self) -> None:
        """Wait until it serves."""
        assert self._told() == "ready\n"

    def order(
        self,
        identifier: str,
        password: str = "wrong",
        *,
        times: int = 1,
        client: str = "203.0.113.9",
        start_s: float = 0,
    ) -> None:
        """Have so many requests sent at an instant."""
        assert self._process.stdin is not None
        order = {
            "identifier": identifier,
            "password": password,
            "times": times,
            "client": client,
            "start_s": start_s,
        }
        print(json.dumps(order), file=self._process.stdin, flush=True)

    def told(self) -> Told:
        """Give what came of an order."""
        told: Told = json.loads(self._told())
        return told

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> None:
        """Let it end."""
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


@pytest.fixture
def workers(valkey_url: str) -> Iterator[Callable[..., list[Worker]]]:
    """Start web workers on the session's store; those of one call begin together."""
    started: list[Worker] = []

    def start(count: int, policy: dict[str, Any], **given: Any) -> list[Worker]:
        new = [Worker(url=valkey_url, policy=policy, **given) for _ in range(count)]
        started.extend(new)
        for each in new:
            each.ready()
        return new

    yield start
    for each in started:
        each.end()


def site_of(url: str, policy: dict[str, Any]) -> Site:
    """Make a worker's app."""
    app = Flask(__name__)
    app.config.update(
        TESTING=True,
        SECRET_KEY="of the session",
        AUTHGUARD_STORE_URL=url,
        AUTHGUARD_SECRET=SECRET,
        AUTHGUARD_POLICY=policy,
        AUTHGUARD_DEADLINE_MS=10_000,
    )
    site = Site(app, AuthGuard(app))
    app.register_blueprint(site.auth.blueprint(accounts=site.people), url_prefix="/auth")
    return site


def real_s() -> float:
    """Read the monotonic clock itself, which freezegun leaves alone."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def main(given: dict[str, Any]) -> None:
    """Be a worker until the input ends."""
    site = site_of(given["url"], given["policy"])
    threads = given.get("threads", 1)
    barrier = threading.Barrier(threads)
    wait = threading.Event().wait

    def ask(order: dict[str, Any]) -> tuple[int, str | None]:
        if order["times"] == threads:
            barrier.wait()
        wait(max(0.0, order.get("start_s", 0.0) - real_s()))
        answer = site.login(order["identifier"], order["password"], client=order["client"])
        return answer.status_code, answer.headers.get("Retry-After")

    offset_s = given.get("offset_s", 0)
    moved = datetime.now(UTC) + timedelta(seconds=offset_s)
    with (
        freeze_time(moved, tick=True) if offset_s else nullcontext(),
        ThreadPoolExecutor(threads) as pool,
    ):
        print("ready", flush=True)  # noqa: T201 (its answer)
        for line in sys.stdin:
            order = json.loads(line)
            before = len(site.spy.checks)
            answers = list(pool.map(ask, [order] * order["times"]))
            told = {"answers": answers, "checked": len(site.spy.checks) - before, "s": time.time()}
            print(json.dumps(told), flush=True)  # noqa: T201 (likewise)
    site.guard.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
