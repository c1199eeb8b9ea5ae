"""docs/messages.md says what the code does, and its examples run."""

from __future__ import annotations

import inspect
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from authguard import smtp
from authguard.smtp import DeliveryFailed, SmtpNotifier

from .conftest import a_message

PAGE = (Path(__file__).parents[2] / "docs/messages.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(code: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Run a block of the page."""
    exec(compile(code, "messages.md", "exec"), scope)
    return scope


class _Provider(HTTPServer):
    """A provider of text messages, with an API like many."""

    def __init__(self) -> None:
        self.took: list[tuple[str, Any]] = []
        self.status = 202
        super().__init__(("127.0.0.1", 0), _Taking)


class _Taking(BaseHTTPRequestHandler):
    server: _Provider

    def do_POST(self) -> None:
        """Take one message."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.took.append((self.headers["Authorization"], json.loads(content)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def test_a_notifier_of_ten_lines_sends_text_messages() -> None:
    """The page's notifier, run as printed, sends one call a message, and raises if it's refused."""
    _, _, example, both, _ = BLOCKS
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    with _Provider() as provider:
        thread = threading.Thread(target=provider.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{provider.server_port}/messages"
        scope = run(example, {"API": url, "KEY": "of-the-tests"})
        notifier = run(both, scope | {"SmtpNotifier": SmtpNotifier})["notifier"]
        message = a_message(channel="sms", to="+14155550101", subject="", body="Your code is 1.")
        notifier.send(message)
        provider.status = 500
        with pytest.raises(HTTPError) as refused:
            notifier.send(message)
        refused.value.close()
        provider.shutdown()
        thread.join()
    taken = ("Bearer of-the-tests", {"to": "+14155550101", "text": "Your code is 1."})
    assert provider.took == [taken, taken]


def test_the_example_of_mail_is_a_notifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's set-up of mail is taken, with the defaults that its table gives."""
    monkeypatch.setenv("SMTP_PASSWORD", "of the mail server")
    assert isinstance(run(BLOCKS[1], {})["notifier"], SmtpNotifier)
    table = PAGE.partition("| argument |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+?) \|", table, re.MULTILINE)
    told = {
        name: default.strip('`"') for names, default in rows for name in re.findall(r"\w+", names)
    }
    arguments = inspect.signature(SmtpNotifier).parameters
    for name, argument in arguments.items():
        none = "none, required" if argument.default is argument.empty else "none"
        given = argument.default not in (None, argument.empty)
        assert told[name] == (str(argument.default) if given else none), name


def test_every_reason_is_on_the_page() -> None:
    """The page and DeliveryFailed list every reason there is, and no other."""
    rows = PAGE.partition("The reasons of `DeliveryFailed`:")[2].partition("##")[0]
    listed = {
        reason
        for row in re.findall(r"^\| (`.+?) \|", rows, re.MULTILINE)
        for reason in re.findall(r"`([^`]+)`", row)
    }
    assert listed == {word for _, word in smtp._REASONS} | {"timeout", "client failure"}
    attributes = inspect.getdoc(DeliveryFailed) or ""
    assert not [reason for reason in listed if f"``{reason}``" not in " ".join(attributes.split())]


def test_the_outbox_for_tests_is_a_notifier() -> None:
    """The page's two lines keep what they are given."""
    outbox = run(BLOCKS[4], {})["Outbox"]()
    outbox.send(a_message())
    assert outbox == [a_message()]
