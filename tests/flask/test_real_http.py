"""Over a real socket with the store's own clock: wait exactly Retry-After, and be admitted."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.flask.conftest import Site


@pytest.fixture
def port(site_factory: Callable[..., Site]) -> Iterator[int]:
    """Serve a site with short windows on a free port."""
    site = site_factory(
        limits=[
            {"name": "account", "by": ["account"], "sliding_log": "3/1s", "lockout": "2s"},
            {"name": "client", "by": ["client"], "sliding_log": "100/5m"},
        ]
    )
    server = make_server("127.0.0.1", 0, site.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def post(port: int, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, str], Any]:
    """Send one request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"Content-Type": "application/json"} | headers
        connection.request("POST", "/auth/login", json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())
    finally:
        connection.close()


def test_wait_as_told(port: int) -> None:
    """A40, B105: who is refused and waits exactly Retry-After seconds is admitted."""
    wrong = {"identifier": "vera", "password": "wrong"}
    right = {"identifier": "vera", "password": "right vera"}
    answers = [post(port, wrong) for _ in range(4)]
    assert [status for status, _, _ in answers] == [401, 401, 401, 429]
    status, fields, body = post(port, right)
    assert status == 429
    assert fields["Retry-After"] in ("1", "2")
    assert body["retry_after"] == int(fields["Retry-After"])
    time.sleep(int(fields["Retry-After"]))
    status, _, body = post(port, right)
    assert (status, body) == (200, {"status": "authenticated"})


def test_chunked_body_over_a_socket(port: int) -> None:
    """A chunked body is read to its end, and one over 16 KiB is 413."""

    def send(size: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            body = json.dumps({"identifier": "vera", "password": "x" * size}).encode()
            pieces = (body[start : start + 1000] for start in range(0, len(body), 1000))
            fields = {"Content-Type": "application/json"}
            connection.request("POST", "/auth/login", pieces, fields, encode_chunked=True)
            return connection.getresponse().status
        finally:
            connection.close()

    assert send(1_000) == 401
    assert send(17_000) == 413
