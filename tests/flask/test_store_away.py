"""The store is away, slow, full or wrong: 503, nothing verified, nothing invented."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from authguard.flask import signals
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey
    from werkzeug.test import TestResponse

    from authguard.testing import EmbeddedValkey
    from tests.flask.conftest import Site


@pytest.fixture
def broken(own_valkey: EmbeddedValkey, site_factory: Callable[..., Site]) -> Site:
    """Give a site on that server, with an unprotected page."""
    site = site_factory(AUTHGUARD_STORE_URL=own_valkey.url, AUTHGUARD_DEADLINE_MS=2_000)
    site.app.add_url_rule("/health", "health", lambda: "fine")
    return site


def kill(server: EmbeddedValkey) -> None:
    """Stop the server and wait until its port answers no more."""
    os.kill(server.pid, signal.SIGKILL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        except OSError:
            return


def assert_away(answer: TestResponse) -> None:
    """Check that the answer is the fail-closed 503."""
    assert answer.status_code == 503
    assert answer.json is not None
    assert answer.json["title"] == "Service Unavailable"
    assert 5 <= int(answer.headers["Retry-After"]) <= 10
    assert answer.json["retry_after"] == int(answer.headers["Retry-After"])
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in answer.headers


def test_nothing_listens(broken: Site, own_valkey: EmbeddedValkey) -> None:
    """B048: with the store down 50 right passwords are 50 x 503, unchecked; then it is back."""
    assert broken.login("vera", "right vera").status_code == 200
    kill(own_valkey)
    for _ in range(50):
        assert_away(broken.login("vera", "right vera"))
    assert len(broken.spy.checks) == 1
    with embedded_valkey(port=own_valkey.port):
        assert broken.login("vera", "right vera").status_code == 200
        assert broken.login().status_code == 401


def test_malformed_while_away(broken: Site, own_valkey: EmbeddedValkey) -> None:
    """B048: a malformed request can't be charged either, so it is 503 too, as page and JSON."""
    kill(own_valkey)
    assert_away(broken.post(json={}))
    page = broken.post(data={"identifier": "vera", "password": "right vera"})
    assert (page.status_code, page.mimetype) == (503, "text/html")
    assert int(page.headers["Retry-After"]) >= 5


def test_error_is_named_once(
    broken: Site, own_valkey: EmbeddedValkey, caplog: pytest.LogCaptureFixture
) -> None:
    """B051: a clean 503, the reason once in log and signal, and other routes go on working."""
    reasons: list[str] = []

    def listen(_sender: object, *, action: str, reason: str) -> None:
        reasons.append(f"{action}: {reason}")

    kill(own_valkey)
    with signals.store_unavailable.connected_to(listen):
        assert_away(broken.login())
    assert reasons == ["login: connection"]
    assert caplog.text.count("no verdict: connection") == 1
    assert broken.browser().get("/health").status_code == 200
    assert broken.browser().get("/auth/login").status_code == 200


def test_paused_store(
    own_valkey: EmbeddedValkey,
    site_factory: Callable[..., Site],
    record_property: Callable[..., None],
) -> None:
    """A store that hangs is 503 by the deadline, and works again when it wakes."""
    site = site_factory(AUTHGUARD_STORE_URL=own_valkey.url, AUTHGUARD_DEADLINE_MS=1_000)
    assert site.login().status_code == 401
    os.kill(own_valkey.pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        assert_away(site.login("vera", "right vera"))
        took_s = time.monotonic() - began_s
    finally:
        os.kill(own_valkey.pid, signal.SIGCONT)
    record_property("answered_after_s", took_s)
    assert took_s < 5  # a hung connection without a deadline would take for ever
    assert len(site.spy.checks) == 1
    assert site.login("vera", "right vera").status_code == 200


@pytest.mark.parametrize(("password", "status"), [("wrong", 401), ("right vera", 200)])
def test_store_dies_in_between(
    broken: Site, own_valkey: EmbeddedValkey, password: str, status: int
) -> None:
    """B050: if the store dies during the check the answer stands, and it is told once."""
    told: list[str] = []

    def listen(_sender: object, *, action: str) -> None:
        told.append(action)

    broken.spy.before = lambda: kill(own_valkey)
    with signals.settle_failed.connected_to(listen):
        assert broken.login("vera", password).status_code == status
    assert told == (["login"] if status == 200 else [])


def test_charge_outlives_a_hang_in_between(
    broken: Site, own_valkey: EmbeddedValkey, own_client: valkey.Valkey
) -> None:
    """B050: an attempt whose success could not be told stays counted when the store is back."""
    assert broken.login().status_code == 401

    def cut() -> None:
        own_client.config_set("maxclients", 1)
        own_client.client_kill_filter(_type="normal", skipme=True)

    broken.spy.before = cut
    assert broken.login("vera", "right vera").status_code == 200
    own_client.config_set("maxclients", 10_000)
    assert broken.used() == 2


def test_full_memory(broken: Site, own_client: valkey.Valkey) -> None:
    """B052: with its memory full the store refuses, half of nothing is written, and it goes on."""
    assert broken.statuses(3) == [401] * 3
    own_client.config_set("maxmemory-policy", "noeviction")
    before = {key: own_client.dump(key) for key in own_client.scan_iter()}
    own_client.config_set("maxmemory", 1)
    assert_away(broken.login("vera", "right vera"))
    own_client.config_set("maxmemory", 0)
    assert {key: own_client.dump(key) for key in own_client.scan_iter()} == before
    assert broken.used() == 3
    assert broken.statuses(3) == [401] * 2 + [429]


def test_script_cache_lost(broken: Site, own_client: valkey.Valkey) -> None:
    """B053: after SCRIPT FLUSH the next try counts exactly once, also under load."""
    assert broken.statuses(3) == [401] * 3
    own_client.script_flush()
    assert broken.statuses(3) == [401] * 2 + [429]
    assert broken.used() == 5
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            own_client.script_flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        answers = [broken.login(f"user-{number}").status_code for number in range(15)]
    finally:
        over.set()
        flusher.join()
    assert set(answers) <= {401, 503}
    assert broken.used("client") >= 5 + answers.count(401)
    assert len(broken.spy.checks) == 5 + answers.count(401)


def test_demoted_primary(broken: Site, own_client: valkey.Valkey) -> None:
    """B054: a server that became read-only is 503, and works at once when it is writable again."""
    assert broken.login().status_code == 401
    own_client.replicaof("127.0.0.1", "1")
    assert_away(broken.login("vera", "right vera"))
    own_client.replicaof("NO", "ONE")
    assert broken.login("vera", "right vera").status_code == 200


@pytest.mark.parametrize("content", ["list", "string"])
def test_foreign_content(broken: Site, own_client: valkey.Valkey, content: str) -> None:
    """A key that holds what no log can hold is no verdict: 503, and nothing is verified."""
    broken.login()
    for key in list(own_client.scan_iter()):
        own_client.delete(key)
        if content == "list":
            own_client.rpush(key, "x")
        else:
            own_client.set(key, "no log of ours")
        own_client.expire(key, 100)
    assert_away(broken.login("vera", "right vera"))
    assert len(broken.spy.checks) == 1
