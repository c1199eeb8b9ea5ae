"""Messages after the answer: what holds one back shows in signals and logs, never in the answer."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from authguard._outgoing import Outgoing
from authguard.flask import signals
from authguard.identity import AccountKey, read_phone
from tests.flask.conftest import Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey
    from werkzeug.test import TestResponse

    from authguard.notify import Message
    from tests.conftest import Clock
    from tests.flask.conftest import Site

HOUR_MS = 3_600_000
LIFE_MS = 600_000
DAY_MS = 86_400_000

Heard = dict[str, list[dict[str, Any]]]


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Listen to what operators are told of messages."""
    heard: Heard = {"send_withheld": [], "sends_stopped": [], "send_failed": []}
    listeners = []
    for name, payloads in heard.items():

        def listen(_app: object, payloads: list[dict[str, Any]] = payloads, **payload: Any) -> None:
            payloads.append(payload)

        getattr(signals, name).connect(listen)
        listeners.append((getattr(signals, name), listen))
    yield heard
    for signal, listen in listeners:
        signal.disconnect(listen)


def invite(site: Site, number: int, phone: str) -> str:
    """Add an account with a phone; give its name."""
    name = f"user-{number}"
    site.people.by_key[f"more-{number}"] = Person(f"more-{number}", name, None, phone=phone)
    return name


def ask(site: Site, name: str, number: int = 0, channel: str = "sms") -> TestResponse:
    """Ask for a code from an address of one's own; the answer is always the same."""
    answer = site.send_code(name, channel, client=f"198.{number % 200}.{number // 200}.1")
    assert answer.status_code == 202
    assert answer.json is not None
    assert answer.json.keys() == {"status", "challenge", "retry_after"}
    return answer


def reasons(heard: Heard) -> list[tuple[str, ...]]:
    """Tell what messages were withheld by."""
    return [payload["reasons"] for payload in heard["send_withheld"]]


def test_numbers_in_sequence(default_site: Site, heard: Heard) -> None:
    """A80: of forty numbers in a row, each from its own address, thirty an hour are sent a code."""
    answers = []
    for number in range(40):
        name = invite(default_site, number, f"+1415555{number:04}")
        answers.append(ask(default_site, name, number))
        default_site.messages()  # one after another, so that the first thirty are known
    assert len({answer.json["retry_after"] for answer in answers if answer.json}) == 1
    sent = [message.to for message in reversed(default_site.messages("code"))]
    assert sent == [f"+1415555{number:04}" for number in range(30)]
    assert reasons(heard) == [("range",)] * 10
    subjects = [default_site.guard.subject(AccountKey(f"more-{n}")) for n in range(30, 40)]
    assert [payload["subject"] for payload in heard["send_withheld"]] == subjects
    assert {payload["action"] for payload in heard["send_withheld"]} == {"otp.send"}


def test_codes_that_nobody_enters(default_site: Site, heard: Heard, clock: Clock) -> None:
    """A80: after fifty codes that nobody entered texts stop for a day, which is told once."""
    for number in range(55):
        name = invite(default_site, number, f"+1415{555 + number % 5}{number:04}")
        ask(default_site, name, number)
    default_site.messages()
    assert heard["send_withheld"] == heard["sends_stopped"] == []
    clock.advance(LIFE_MS)
    ends_at_ms = clock.now_ms + DAY_MS
    ask(default_site, "vera", 60)  # this one still goes out, and finds that the others didn't
    default_site.messages()
    for number, name in enumerate(("omar", "user-1", "user-2"), 61):
        ask(default_site, name, number)
        default_site.messages()
    assert heard["sends_stopped"] == [
        {"action": "otp.send", "limit": "country-conversion", "ends_at_ms": ends_at_ms}
    ]
    assert reasons(heard) == [("country-conversion",)] * 3
    assert len(default_site.messages("code")) == 56
    ask(default_site, "nora", 70, channel="email")
    assert default_site.messages("code")[0].channel == "email"
    clock.advance(DAY_MS)
    ask(default_site, "omar", 71)
    assert default_site.messages("code")[0].to == "+14155550102"
    assert len(heard["sends_stopped"]) == 1


def test_codes_that_are_entered(default_site: Site, heard: Heard, clock: Clock) -> None:
    """A80: where a fifth of the last fifty codes was entered, sends go on."""
    for number in range(50):
        name = invite(default_site, number, f"+1415{555 + number % 5}{number:04}")
        challenge = ask(default_site, name, number).json["challenge"]  # type: ignore[index]
        code = default_site.messages("code")[0].code
        assert code is not None
        if number < 10:
            answer = default_site.verify(challenge, code, client=f"192.0.{number}.1")
            assert answer.status_code == 200
    default_site.messages()
    clock.advance(LIFE_MS)
    for number, name in enumerate(("vera", "omar"), 60):
        ask(default_site, name, number)
    assert len(default_site.messages("code")) == 52
    assert heard == {"send_withheld": [], "sends_stopped": [], "send_failed": []}


def test_what_is_no_code_is_not_ignored(default_site: Site, clock: Clock, heard: Heard) -> None:
    """A80: a notice by text message has nothing to enter, and counts as no ignored code."""
    vera = default_site.people.by_key["key-1"]
    vera.__class__ = type("Mailless", (Person,), {"email": None})
    for number in range(52):
        clock.advance(DAY_MS)
        vera.phone = f"+1415{555 + number % 9}0101"
        client = f"198.51.{number}.1"
        for password in ("wrong", "wrong", "wrong", "right vera"):
            answer = default_site.login("vera", password, client=client)
        assert answer.status_code == 200
        default_site.messages()  # before the clock moves on
    sent = default_site.messages()
    assert len(sent) == 52
    assert {(message.kind, message.channel) for message in sent} == {("notice", "sms")}
    clock.advance(DAY_MS)
    ask(default_site, "omar")
    default_site.messages()
    assert heard["sends_stopped"] == []


@pytest.mark.parametrize(
    ("phone", "allowed"),
    [
        ("+4740000001", ("US",)),  # another country
        ("+14155550101", ()),  # no country at all
        ("+14155550101", ("CA",)),  # the same prefix, and another country
        ("+19005550101", ("US",)),  # premium rate
        ("+18005550101", ("US",)),  # toll-free
        ("+448712345678", ("GB",)),  # shared cost
        ("+447624123456", ("GB",)),  # of the Isle of Man
        ("+447640123456", ("GB",)),  # a pager
        ("+881612345678", ("US", "GB")),  # a satellite
        ("+882101234567", ("US", "GB")),  # an international network
        ("+979123456789", ("US", "GB")),  # international premium rate
    ],
)
def test_countries_and_dear_numbers(
    site_factory: Callable[..., Site], heard: Heard, phone: str, allowed: tuple[str, ...]
) -> None:
    """A81: numbers abroad, premium, toll-free and of satellites get nothing; without a list all."""
    site = site_factory(messages={"sms_countries": allowed})
    site.people.by_key["key-1"].phone = phone
    ask(site, "vera")
    assert site.messages() == []
    assert reasons(heard) == [("country",)]
    # Refused before anything that others share is charged.
    standing = site.guard.usage("otp.send", destination=read_phone(phone))
    used = {each.name: each.used for each in standing}
    assert (used["range"], used["budget"], used["destination-day"]) == (0, 0, 0)


@pytest.mark.parametrize(("phone", "allowed"), [("+4740000001", "NO"), ("+447400123456", "GB")])
def test_countries_that_are_allowed(
    site_factory: Callable[..., Site], phone: str, allowed: str
) -> None:
    """A81: a mobile number of a country on the list gets its code."""
    site = site_factory(messages={"sms_countries": [allowed]})
    site.people.by_key["key-1"].phone = phone
    ask(site, "vera")
    assert [message.to for message in site.messages()] == [phone]


def test_the_budget(default_site: Site, heard: Heard, clock: Clock) -> None:
    """A82: with the hour's budget spent text messages go to known devices alone; all else works."""
    clock.advance(-clock.now_ms % HOUR_MS)  # where a window of the clock begins
    known = default_site.browser("192.0.2.1")
    body = {"identifier": "vera", "password": "right vera"}
    assert known.post("/auth/login", json=body).status_code == 200
    for number in range(180):
        number_of = read_phone(f"+1415{600 + number // 20}{number:04}")
        default_site.guard.message("otp.send", destination=number_of)
    ask(default_site, "omar", 1)
    ask(default_site, "vera", 2)
    default_site.messages()
    assert reasons(heard) == [("budget-hour",)] * 2
    clock.advance(30_000)
    sent = known.post("/auth/otp/send", json={"identifier": "vera", "channel": "sms"})
    assert sent.status_code == 202
    ask(default_site, "nora", 3, channel="email")
    sent_to = {message.to for message in default_site.messages("code")}
    assert sent_to == {"+14155550101", "nora@example.test"}
    assert default_site.login("omar", "right omar").status_code == 200
    clock.advance(HOUR_MS)
    ask(default_site, "omar", 4)
    assert default_site.messages("code")[0].to == "+14155550102"


def test_one_number_of_many_accounts(default_site: Site, heard: Heard) -> None:
    """A83: six accounts with one number: five codes an hour go there, the sixth is withheld."""
    for number in range(6):
        spelling = ("+14155550111", "+1 (415) 555-0111", "+1.415.555.0111")[number % 3]
        ask(default_site, invite(default_site, number, spelling), number)
        default_site.messages()
    assert len(default_site.messages("code")) == 5
    assert reasons(heard) == [("destination-hour",)]


def test_one_mailbox_of_many_accounts(default_site: Site, heard: Heard, clock: Clock) -> None:
    """A83: ten mails a day go to one mailbox, whatever the accounts' spellings of it are."""
    for number in range(11):
        name = invite(default_site, number, "+14155550111")
        person = default_site.people.by_key[f"more-{number}"]
        person.__class__ = type("Mailed", (Person,), {"email": f"v.e.ra+{number}@gmail.com"})
        ask(default_site, name, number, channel="email")
        default_site.messages()
        clock.advance(HOUR_MS)
    assert len(default_site.messages("code")) == 10
    assert reasons(heard) == [("destination-day",)]


@pytest.mark.parametrize("phone", ["", "5550101", "+1", "vera@example.test", "+1415555010101010"])
def test_a_stored_number_that_is_none(
    post_site: Site, heard: Heard, caplog: pytest.LogCaptureFixture, phone: str
) -> None:
    """What is stored and no number gets nothing; the answer is everybody's, the log hides it."""
    post_site.people.by_key["key-1"].phone = phone
    ask(post_site, "vera")
    assert post_site.messages() == []
    assert reasons(heard) == [("address",)]
    assert not phone or phone not in caplog.text


def test_a_provider_that_hangs(post_site: Site) -> None:
    """A79: a provider that takes its time makes no answer late, and gets the message once."""
    wake = threading.Event()
    tries: list[str] = []

    def hang(message: Message) -> None:
        tries.append(message.kind)
        wake.wait(30)

    post_site.outbox.send = hang  # type: ignore[method-assign]
    try:
        began_s = time.monotonic()
        for number, name in enumerate(("vera", "omar", "nora", "ghost", "dora", "user-1")):
            ask(post_site, name, number, channel="email")
        assert post_site.login("tess", "right tess").status_code == 200
        assert time.monotonic() - began_s < 10  # each would have hung for thirty seconds
        assert len(tries) <= 4
    finally:
        wake.set()
    post_site.messages()
    assert tries == ["code"] * 4


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyError, OSError, UnicodeError])
def test_a_provider_that_raises(
    post_site: Site, heard: Heard, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """A79, A84: whatever the provider raises changes no answer; the log has its type alone."""
    caplog.set_level(logging.DEBUG)

    def fail(message: Message) -> None:
        raise error(f"{message.to} {message.code}")

    post_site.outbox.send = fail  # type: ignore[method-assign]
    wait_s = ask(post_site, "vera").json["retry_after"]  # type: ignore[index]
    post_site.messages()
    assert ask(post_site, "ghost").json["retry_after"] == wait_s == 60  # type: ignore[index]
    assert error.__name__ in caplog.text
    assert "555" not in caplog.text
    if issubclass(error, Exception):
        assert heard["send_failed"] == [{"action": "otp.send", "reason": error.__name__}]


def test_too_many_messages_waiting(
    post_site: Site, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message for which there is no room is told of, and its request is answered like any."""
    wake, busy = threading.Event(), threading.Event()

    def hang(message: Message) -> None:
        busy.set()
        wake.wait(30)

    state: Any = post_site.state
    monkeypatch.setattr(state.messaging.outbound, "_outgoing", Outgoing(1, 1))
    post_site.outbox.send = hang  # type: ignore[method-assign]
    try:
        ask(post_site, "vera")
        assert busy.wait(30)
        ask(post_site, "omar")
        assert heard["send_failed"] == []
        ask(post_site, "nora", channel="email")
        assert heard["send_failed"] == [
            {"action": "otp.send", "reason": "too many messages are waiting"}
        ]
    finally:
        wake.set()


def test_a_code_is_nowhere_but_in_its_message(
    default_site: Site,
    client: valkey.Valkey,
    caplog: pytest.LogCaptureFixture,
    heard: Heard,
) -> None:
    """A84: no answer, log, signal or key of the store holds a code, nor the store a challenge."""
    caplog.set_level(logging.DEBUG)
    answers = [ask(default_site, "vera"), default_site.login("tess", "right tess")]
    codes = [message.code for message in default_site.messages("code")]
    challenges = [answer.json["challenge"] for answer in answers if answer.json]
    dump = [key + (client.dump(key) or b"") for key in client.scan_iter()]
    for challenge, code in zip(challenges, reversed(codes), strict=True):
        assert code is not None
        answers.append(default_site.verify(challenge, f"{code}0"))
        answers.append(default_site.verify(challenge, code))
    dump += [key + (client.dump(key) or b"") for key in client.scan_iter()]
    seen = caplog.text + repr(heard)
    seen += "".join(answer.text + str(answer.headers) for answer in answers)
    assert [answer.status_code for answer in answers] == [202, 200, 401, 200, 401, 200]
    for code in codes:
        assert code is not None
        assert code not in seen
        for form in (code.encode(), code.encode().hex().encode(), int(code).to_bytes(4, "big")):
            assert all(form not in each for each in dump)
    for challenge in challenges:
        assert challenge not in caplog.text
        assert all(challenge.encode() not in each for each in dump)
