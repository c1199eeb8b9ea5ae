"""What a thief of the store finds after a full run: no name, address, number, code or password."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import logging
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import valkey

from authguard.flask import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask.testing import FlaskClient

    from tests.conftest import Clock
    from tests.flask.conftest import Site

MINUTE = 60_000
#: Behind each name: four bytes alone would turn up by chance in so many random ones.
LONGER = "-of-the-run"
VERA, OMAR, DORA, TESS = (f"{name}{LONGER}" for name in ("vera", "omar", "dora", "tess"))
NOBODY = "nobody-at-all"
HOME, FAR, SIX = "203.0.113.9", "198.51.100.77", "2001:db8:aa:bb::77"


def forms(text: str) -> Iterator[bytes]:
    """Give a text as it may stand somewhere: plain, encoded, or merely hashed without a key."""
    raws = {text.encode(), text.upper().encode(), text.encode("utf-16-le")}
    with suppress(ValueError):
        raws.add(ipaddress.ip_address(text).packed)
    if len(text) == 43:  # a token: its bits
        raws.add(base64.urlsafe_b64decode(text + "="))
    hashes = ("md5", "sha1", "sha256", "sha512", "blake2b")
    digests = {hashlib.new(name, raw).digest() for name in hashes for raw in raws}
    for raw in raws | digests:
        yield raw
        yield raw.hex().encode()
        yield raw.hex().upper().encode()
        yield base64.b64encode(raw).rstrip(b"=")
        yield base64.urlsafe_b64encode(raw).rstrip(b"=")


class Thief:
    """Copies the store again and again, and listens to all that is sent to it."""

    def __init__(self, client: valkey.Valkey) -> None:
        self._client = client
        self.keys: set[bytes] = set()
        self._pairs: set[bytes] = set()

    @property
    def loot(self) -> bytes:
        """All that was taken, each thing once."""
        return b"\n".join(self._pairs)

    def copy(self) -> None:
        """Take every key and value as they are now; no key may live for ever."""
        for key in self._client.scan_iter(count=1000):
            assert self._client.type(key) == b"string", key
            value: Any = self._client.get(key)
            life: Any = self._client.pttl(key)
            assert life != -1, key
            self.keys.add(key)
            self._pairs |= {key, value or b""}


def found(secrets: dict[str, str], loot: bytes) -> list[str]:
    """Tell which of these stand in the loot in any form."""
    return [name for name, text in secrets.items() if any(form in loot for form in forms(text))]


class FullRun:
    """Every flow, with all that must not be found afterwards."""

    def __init__(self, site: Site, clock: Clock, thief: Thief) -> None:
        self.site, self.clock, self.thief = site, clock, thief
        self.secrets: dict[str, str] = {
            "client": HOME,
            "another client": FAR,
            "an IPv6 client": SIX,
        }
        for key, person in site.people.by_key.items():
            person.username += LONGER
            self.secrets |= {f"key of {key}": key, f"name of {key}": person.username}
            self.secrets[f"mail of {key}"] = person.email
            if person.phone:
                self.secrets[f"phone of {key}"] = person.phone
                self.secrets[f"digits of {key}"] = person.phone[1:]
                self.secrets[f"national digits of {key}"] = person.phone[2:]
            self.secrets[f"session of {key}"] = person.session_stamp
            self.secrets[f"device of {key}"] = person.device_stamp
            self.secrets[f"hash of {key}"] = person.password_hash or "$argon2id$"

    def keep(self, name: str, text: str) -> str:
        """Note that a text must not be found."""
        self.secrets[f"{name} {len(self.secrets)}"] = text
        return text

    def newest(self, kind: str) -> Any:
        """Give the newest message of a kind, and note its secrets."""
        (sent, *_) = self.site.messages(kind)
        for name in ("code", "token"):
            text = getattr(sent, name)
            if text is not None:
                self.keep(f"{name} of a {kind}", text)
        self.thief.copy()
        return sent

    def login(self, browser: FlaskClient, who: str, password: str) -> int:
        """Sign in, and steal."""
        self.keep("password", password)
        body = {"identifier": who, "password": password}
        answer = browser.post("/auth/login", json=body)
        if answer.json and "challenge" in answer.json:
            self.keep("challenge", answer.json["challenge"])
        for cookie in ("session", "authguard_device"):
            held = browser.get_cookie(cookie)
            if held is not None:
                self.keep(cookie, held.value)
        self.thief.copy()
        return answer.status_code

    def all(self) -> None:
        """Walk through everything once."""
        self.signing_in()
        self.codes()
        self.locks_and_links()
        self.recovery()
        self.operators()
        self.junk()

    def signing_in(self) -> None:
        """Right and wrong passwords by every name, known and unknown devices."""
        for client in (HOME, FAR, SIX):
            browser = self.site.browser(client)
            assert self.login(browser, f"{VERA.title()}@example.test", "a wrong one") == 401
            assert self.login(browser, VERA, "right vera") == 200
            assert self.login(browser, VERA, "another wrong one") == 401
        browser = self.site.browser()
        assert self.login(browser, self.keep("nobody", NOBODY), "wrong") == 401
        assert self.login(browser, DORA, "right dora") == 401

    def codes(self) -> None:
        """Second factor, wrong and right codes, resends, codes alone, by both channels."""
        browser = self.site.browser(FAR)
        assert self.login(browser, TESS, "right tess") == 200
        code = self.newest("code").code
        with browser.session_transaction() as session:
            challenge = session["authguard.pending"]["challenge"]
        wrong = {"challenge": challenge, "code": self.keep("wrong code", "918273")}
        assert browser.post("/auth/otp/verify", json=wrong).status_code == 401
        self.thief.copy()
        body = {"challenge": challenge, "code": code}
        assert browser.post("/auth/otp/verify", json=body).status_code == 200
        self.thief.copy()
        for who, channel in ((VERA, "sms"), (OMAR, "email"), (NOBODY, "sms")):
            sent = self.site.send_code(who, channel, client=SIX).json or {}
            challenge = self.keep("challenge", sent["challenge"])
            if who != NOBODY:
                code = self.newest("code").code
                assert self.site.verify(challenge, code, client=SIX).status_code == 200
            self.site.verify(challenge, "12345678", client=SIX)
            self.thief.copy()

    def locks_and_links(self) -> None:
        """A lock, its link, a reset that is asked for twice and used once."""
        for number in range(10):
            client = f"100.{64 + number}.7.7"
            assert self.site.login(OMAR, client=client).status_code == 401
        self.keep("guesser", "100.64.7.7")
        assert self.site.login(OMAR).status_code == 429
        token = self.newest("unlock").token
        assert self.site.post("/auth/unlock", json={"token": token}).status_code == 200
        self.thief.copy()
        for _ in range(2):
            ask = {"identifier": f"{OMAR}@example.test"}
            assert self.site.post("/auth/password/forgot", json=ask).status_code == 202
            token = self.newest("reset").token
            self.clock.advance(MINUTE)
        body = {"token": token, "password": self.keep("new password", "a new one for omar")}
        assert self.site.post("/auth/password/reset", json=body).status_code == 200
        self.keep("new hash", self.site.people.by_key["key-2"].password_hash or "")
        self.newest("notice")
        bad = {"token": self.keep("bad token", "QUJD" * 10 + "QUI"), "password": "whatever it is"}
        assert self.site.post("/auth/password/reset", json=bad).status_code == 400

    def recovery(self) -> None:
        """So many failures that an account is shut."""
        self.site.guard.recover("login", account=self.site.guard.account_key(VERA))
        for number in range(110):
            if number % 9 == 0:
                self.clock.advance(12 * 60 * MINUTE)
            client = f"100.{96 + number // 10}.{number}.8"
            answer = self.site.login(VERA, client=client)
            if number % 9 == 0:
                self.thief.copy()
        assert answer.status_code == 429
        assert self.site.people.by_key["key-1"].recovery_required == {"login"}
        self.newest("notice")

    def operators(self) -> None:
        """Blocks of all kinds."""
        guard, vera = self.site.guard, self.site.guard.account_key(VERA)
        guard.block(account=vera, client=HOME)
        guard.block(network=FAR, for_ms=MINUTE)
        guard.block(client=SIX, for_ms=MINUTE)
        self.thief.copy()
        guard.usage("login", account=vera, client=HOME)

    def junk(self) -> None:
        """What can't be used."""
        for path in ("login", "password/forgot", "password/reset", "unlock", "otp/send"):
            self.site.post(f"/auth/{path}", json={"identifier": "vera\0"}, client=FAR)
        self.thief.copy()


@pytest.fixture
def full_run(
    default_site: Site, clock: Clock, client: valkey.Valkey, monkeypatch: pytest.MonkeyPatch
) -> FullRun:
    """Give the run on the default profile, with codes that no time or count can be by chance."""
    monkeypatch.setattr("secrets.randbelow", lambda below: 57_918_264 % below)
    return FullRun(default_site, clock, Thief(client))


def test_a_store_dump_holds_nothing_raw(full_run: FullRun) -> None:
    """A84, A30: after every flow no secret stands in any key or value, in any usual encoding."""
    full_run.all()
    assert len(full_run.thief.keys) > 100
    assert len(full_run.secrets) > 60
    assert found(full_run.secrets, full_run.thief.loot) == []


@pytest.mark.slow
def test_the_thief_would_find_it(full_run: FullRun, client: valkey.Valkey) -> None:
    """The search finds each secret where it does stand: as text, bits, hex, base64 or a hash."""
    full_run.signing_in()
    for text in ("vera", HOME, "QUJD" * 10 + "QUI", "right vera"):
        for form in forms(text):
            client.set("rl:v1:planted", b"\0\1" + form + b"\2", px=1000)
            thief = Thief(client)
            thief.copy()
            assert found({"planted": text}, thief.loot) == ["planted"]


def test_keys_have_one_form_and_one_length(full_run: FullRun) -> None:
    """R11: every key is rl:v1: with a keyed digest, of a fixed length, and has an expiry."""
    full_run.all()
    pattern = re.compile(rb"rl:v1:\{[A-Za-z0-9_-]+\}[A-Za-z0-9_-]+!?")
    assert [key for key in full_run.thief.keys if not pattern.fullmatch(key)] == []
    assert {len(key.rstrip(b"!~")) for key in full_run.thief.keys} == {38}


def test_what_is_sent_to_the_store_holds_nothing_raw(
    full_run: FullRun, client: valkey.Valkey, valkey_server: Any
) -> None:
    """A84: nor does anything that the store is ever told, as its own MONITOR shows it."""
    heard, ready, over = bytearray(), threading.Event(), threading.Event()

    def listen() -> None:
        with (
            valkey.Valkey(port=valkey_server.port, socket_timeout=10) as own,
            own.monitor() as monitor,
        ):
            ready.set()
            while not over.is_set():
                heard.extend(monitor.next_command()["command"].encode("latin-1", "replace"))

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(10)
    full_run.signing_in()
    full_run.codes()
    full_run.locks_and_links()
    over.set()
    client.ping()
    thread.join()
    assert heard.count(b"EVALSHA") > 50
    assert found(full_run.secrets, bytes(heard)) == []


def test_logs_and_events_hold_nothing_raw(
    full_run: FullRun, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A84, B145: no log line, printed line or event of a full run shows a secret, at any level."""
    caplog.set_level(logging.DEBUG)
    events: list[str] = []

    def note(_app: object, **payload: Any) -> None:
        events.append(repr(payload))

    listened = [getattr(signals, name) for name in signals.__all__]
    for signal in listened:
        signal.connect(note)
    try:
        full_run.all()
    finally:
        for signal in listened:
            signal.disconnect(note)
    lines = [
        f"{record.name} {record.getMessage()} {record.args} {record.exc_text}"
        for record in caplog.records
    ]
    printed = capfd.readouterr()
    loot = "\n".join([*lines, *events, printed.out, printed.err]).encode()
    assert len(events) > 100
    assert len(lines) > 1
    assert found(full_run.secrets, loot) == []


@pytest.mark.parametrize("path", ["login", "password/forgot", "password/reset", "unlock"])
def test_no_answer_gives_back_what_was_sent(
    post_site: Site, path: str, site_factory: Callable[..., Site]
) -> None:
    """A84: refusals name the field at fault and never its value; forms give back names alone."""
    secret = "a secret that was typed"
    body = {"identifier": "vera\0", "password": secret, "token": secret}
    for how in ({"json": body}, {"data": body}, {"json": body | {"password": [secret]}}):
        request: dict[str, Any] = dict(how)
        answer = post_site.post(f"/auth/{path}", headers={"Accept": "application/json"}, **request)
        assert answer.status_code in (400, 429)
        assert secret not in answer.text
        assert secret not in repr(list(answer.headers))
