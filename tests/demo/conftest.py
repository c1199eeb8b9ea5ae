"""Runs the demo as its users do: a process of its own, read through its output and over HTTP."""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from email.message import Message

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

ROOT = Path(__file__).parents[2]

DEMO = (sys.executable, "-m", "demo_app", "--port", "0")

#: Generous: the machine may be busy with other things.
START_S = 60.0
END_S = 30.0


@dataclass(frozen=True)
class Reply:
    """An answer of the demo; an error status is an answer like any other."""

    status: int
    headers: Message
    body: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class _AsItIs(urllib.request.HTTPErrorProcessor):
    """Gives back redirects and errors instead of following or raising them."""

    def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 - urllib's hook
        return response


class Visitor:
    """A person or script with cookies and an address of its own."""

    def __init__(self, url: str, address: str | None = None) -> None:
        self._url = url
        self._headers = {} if address is None else {"X-Forwarded-For": address}
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
            _AsItIs(),
        )

    def _ask(self, path: str, data: bytes | None, headers: Mapping[str, str]) -> Reply:
        request = urllib.request.Request(
            self._url + path, data=data, headers={**self._headers, **headers}
        )
        with self._opener.open(request, timeout=30) as response:
            return Reply(response.status, response.headers, response.read().decode())

    def get(self, path: str, accept: str = "text/html") -> Reply:
        """Open a page."""
        return self._ask(path, None, {"Accept": accept})

    def post_json(self, path: str, **fields: Any) -> Reply:
        """Send fields as JSON."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return self._ask(path, json.dumps(fields).encode(), headers)

    def post_form(self, path: str, **fields: str) -> Reply:
        """Send fields as a browser's form does."""
        headers = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
        return self._ask(path, urllib.parse.urlencode(fields).encode(), headers)

    def login(self, identifier: str, password: str) -> Reply:
        """Try to sign in."""
        return self.post_json("/auth/login", identifier=identifier, password=password)


class Demo:
    """One running demo."""

    def __init__(self, command: list[str], temporary: Path, cwd: Path) -> None:
        self.temporary = temporary
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C can be played to the whole group
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()
        self.greeting = ""
        self.url = ""

    def _read_output(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        self._errors.extend(self.process.stderr)

    @property
    def errors(self) -> str:
        """What it wrote on standard error; complete once it has ended."""
        return "".join(self._errors)

    def wait_until_ready(self) -> None:
        """Read up to the ready line."""
        while (line := self._lines.get(timeout=START_S)) is not None:
            if line.startswith("ready "):
                self.url = line.removeprefix("ready ").strip()
                return
            self.greeting += line
        pytest.fail(f"the demo ended before it was ready: {self.greeting}{self.errors}")

    def visitor(self, address: str | None = None) -> Visitor:
        """Somebody with no cookies yet."""
        return Visitor(self.url, address)

    def family(self) -> set[int]:
        """The process and all its descendants, by id."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                after_name = status.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            parents[int(status.parent.name)] = int(after_name[1])
        family = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return family

    def end(self, number: int = signal.SIGTERM, *, group: bool = False) -> int:
        """Ask it to end, wait, and give its exit status."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.process.wait(timeout=END_S)

    def close(self) -> None:
        """End it whatever state it is in, and every process of its group with it."""
        try:
            if self.process.poll() is None:
                self.end()
        finally:
            with contextlib.suppress(ProcessLookupError):  # the usual case: nobody is left
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for reader in self._readers:
                reader.join()
            self.process.stdout.close()
            self.process.stderr.close()


@pytest.fixture(scope="module")
def start_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Demo]]:
    """Start demos with flags of one's own; they end with the module at the latest."""
    running: list[Demo] = []

    def start(*flags: str, command: tuple[str, ...] = DEMO, cwd: Path = ROOT) -> Demo:
        demo = Demo([*command, *flags], tmp_path_factory.mktemp("demo"), cwd)
        running.append(demo)
        demo.wait_until_ready()
        return demo

    yield start
    for demo in running:
        demo.close()


@pytest.fixture(scope="module")
def demo(start_demo: Callable[..., Demo]) -> Demo:
    """One demo for a module; it believes its visitors' X-Forwarded-For."""
    return start_demo("--trusted-proxy", "127.0.0.1/32")


#: Debian's Chromium; Playwright's own download is not used.
CHROMIUM = shutil.which("chromium")
SWITCHES = [
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000

#: How the console tells that a page itself came with an error status; all else is a fault.
_ERROR_STATUS = re.compile(
    r"Failed to load resource: the server responded with a status of (4|503)"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or a loud skip."""
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM ON THIS MACHINE: the pages were NOT tried in a browser")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open pages in browser profiles of their own; a complaint in a console fails the test."""
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def complain(message: ConsoleMessage) -> None:
        worth_it = message.type in ("error", "warning")
        if worth_it and not _ERROR_STATUS.match(message.text):
            complaints.append(message.text)

    def open_(**settings: Any) -> Page:
        context = browser.new_context(**settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    expect.set_options(timeout=PATIENCE_MS)
    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
