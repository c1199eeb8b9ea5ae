"""What operators are told: once for each event, with nothing secret in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from authguard.flask import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Clock
    from tests.flask.conftest import Site

NAMES = (
    "attempt_refused",
    "account_locked",
    "store_unavailable",
    "settle_failed",
    "signed_in",
    "sign_in_failed",
)


class Heard:
    """All signals sent during a test, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []

    def of(self, name: str) -> list[dict[str, Any]]:
        """Give the payloads of one signal."""
        return [payload for sent, payload in self.all if sent == name]


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Listen to every signal."""
    heard = Heard()
    listeners = []
    for name in NAMES:

        def listen(_app: object, name: str = name, **payload: Any) -> None:
            heard.all.append((name, payload))

        getattr(signals, name).connect(listen)
        listeners.append((getattr(signals, name), listen))
    yield heard
    for signal, listen in listeners:
        signal.disconnect(listen)


def test_one_locked_signal_for_one_lock(site: Site, heard: Heard, clock: Clock) -> None:
    """B145: a lock and 50 refused tries are one signal, with the lock's real end."""
    site.statuses(55)
    expected = {
        "action": "login",
        "limit": "account",
        "ends_at_ms": clock.now_ms + 900_000,
        "subject": site.guard.subject(site.guard.account_key("vera")),
    }
    assert heard.of("account_locked") == [expected]
    assert len(heard.of("attempt_refused")) == 50
    assert len(heard.of("sign_in_failed")) == 5
    clock.advance(900_000)
    site.statuses(5)
    assert len(heard.of("account_locked")) == 2


def test_no_signal_for_a_lock_that_success_lifts(site: Site, heard: Heard) -> None:
    """The fifth try that succeeds locks nobody, so nobody is told."""
    site.statuses(4)
    assert site.login("vera", "right vera").status_code == 200
    assert heard.of("account_locked") == []
    assert heard.of("signed_in") == [{"action": "login"}]


def test_crash_in_the_filling_attempt_is_a_lock(site: Site, heard: Heard) -> None:
    """A crash while the fifth try is checked leaves it counted, and the lock is told of."""
    site.statuses(4)

    def crash() -> None:
        raise ZeroDivisionError

    site.spy.before = crash
    with pytest.raises(ZeroDivisionError):
        site.login()
    assert len(heard.of("account_locked")) == 1


def test_signals_and_logs_hold_nothing_raw(
    site: Site, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    """B145: no name, address or password is in any payload or log line."""
    caplog.set_level(logging.DEBUG)
    site.statuses(6, "vera@example.test", "tried-password")
    site.login("omar", "right omar")
    site.post(json={"identifier": "vera\0", "password": "tried-password"})
    text = repr(heard.all) + caplog.text
    for raw in ("vera", "omar", "tried-password", "right", site.home, "key-1"):
        assert raw not in text
    assert len(heard.all) == 5 + 1 + 1 + 1


def test_sender_is_the_app(site: Site) -> None:
    """Receivers can subscribe to one app's signals alone."""
    ours: list[object] = []

    def listen(sender: object, **_: Any) -> None:
        ours.append(sender)

    with signals.sign_in_failed.connected_to(listen, sender=site.app):
        site.login()
    assert ours == [site.app]


def test_failing_receiver(
    site_factory: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    """A receiver that raises is logged, and changes neither the answer nor the count."""
    site = site_factory()

    def fail(_sender: object, **_: Any) -> None:
        raise ZeroDivisionError

    with signals.sign_in_failed.connected_to(fail), signals.attempt_refused.connected_to(fail):
        assert site.statuses(6) == [401] * 5 + [429]
    assert caplog.text.count("a receiver of the signal") == 6


def test_lock_of_a_client(site_factory: Callable[..., Site], heard: Heard) -> None:
    """A client's lock that malformed requests set is told of as well."""
    limits = [{"name": "client", "by": ["client"], "sliding_log": "3/300s", "lockout": "900s"}]
    site = site_factory(limits=limits)
    assert [site.post(json={}).status_code for _ in range(5)] == [400] * 3 + [429] * 2
    assert [payload["limit"] for payload in heard.of("account_locked")] == ["client"]
