"""The message itself: reserved by where it goes and what it costs, out of the asker's sight."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, StoreUnavailable
from authguard.identity import StandIn, read_email, read_phone

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from authguard.identity import Phone
    from authguard.testing import EmbeddedValkey
    from tests.conftest import Clock

HOUR_MS = 3_600_000
LIFE_MS = 600_000
VERA: dict[str, Any] = {"account": "vera", "client": "203.0.113.9", "purpose": "sign-in"}
MAIL = read_email("vera@example.test")


@pytest.fixture
def guard(guard_factory: Callable[..., Guard], clock: Clock) -> Guard:
    """Give a guard on the default profile, on a clock that a test moves."""
    return guard_factory(clock=clock)


def phone(number: int, region: int = 0) -> Phone:
    """Give a number of a range of ten thousand in the United States."""
    return read_phone(f"+1415{555 + region}{number:04}")


def send(guard: Guard, to: Phone, number: int = 0, device: str | None = None) -> str:
    """Reserve a message; tell what refused it or whose lock it set, if anything did."""
    message_id = number.to_bytes(5, "big")
    try:
        attempt = guard.message("otp.send", destination=to, device=device, message_id=message_id)
    except Denied as denied:
        return " ".join(denied.decision.refused_by)
    return " ".join(each.name for each in attempt.decision.verdicts if each.lock_set)


def entered(guard: Guard, to: Phone, number: int) -> None:
    """Say that a message's code was entered."""
    message_id = number.to_bytes(5, "big")
    guard.message_over("otp.send", destination=to, message_id=message_id, entered=True)


def test_the_two_halves_are_all_limits(guard: Guard) -> None:
    """What a stand-in leaves out the message asks for; only a destination's quota is in both."""
    asked = guard.attempt("otp.send", **VERA, destination=StandIn("sms vera"))
    sent = guard.message("otp.send", destination=phone(101))
    halves = [[each.name for each in half.decision.verdicts] for half in (asked, sent)]
    quotas = ["destination-hour", "destination-day"]
    assert [name for name in halves[0] if name in halves[1]] == quotas
    limits = guard.policy("otp.send").limits
    devices = {limit.name for limit in limits if "device" in limit.by}
    assert {*halves[0], *halves[1]} == {limit.name for limit in limits} - devices


def test_a_stand_in_is_no_address(guard: Guard, clock: Clock) -> None:
    """A83: asking for codes uses up the stand-in's quota, and none of any true destination's."""
    for _ in range(5):
        guard.attempt("otp.send", **VERA, destination=StandIn("+14155550101"))
        clock.advance(250_000)
    with pytest.raises(Denied) as denied:
        guard.attempt("otp.send", **VERA, destination=StandIn("+14155550101"))
    assert "destination-hour" in denied.value.decision.refused_by
    assert [send(guard, phone(101)) for _ in range(6)] == [""] * 5 + ["destination-hour"]


def test_a_refused_message_charges_nothing(guard: Guard) -> None:
    """A80, A83: one that its number's quota refuses leaves range and budget as they were."""
    for _ in range(105):
        send(guard, phone(101))
    used = {each.name: each.used for each in guard.usage("otp.send", destination=phone(101))}
    assert used["destination-hour"] == used["range"] == used["budget-hour"] == 5


def test_numbers_in_a_range(guard: Guard, clock: Clock) -> None:
    """A80: thirty an hour go to one range of ten thousand numbers, the next is refused."""
    assert [send(guard, phone(number), number) for number in range(31)] == [""] * 30 + ["range"]
    assert send(guard, phone(0, region=1)) == ""
    clock.advance(HOUR_MS)
    assert send(guard, phone(31)) == ""


def test_the_budget_and_its_reserve(guard: Guard, clock: Clock) -> None:
    """A82: of 200 text messages an hour the last twenty are for known devices; mail costs none."""
    clock.advance(-clock.now_ms % HOUR_MS)  # where a window of the clock begins
    for number in range(180):
        assert send(guard, phone(number, number // 20), number) == ""
        entered(guard, phone(number, number // 20), number)
    assert send(guard, phone(1, 20)) == "budget-hour"
    guard.message("otp.send", destination=MAIL)
    for number in range(20):
        assert send(guard, phone(number, 21), device="known") == ""
    assert send(guard, phone(1, 22), device="known") == "budget-hour"
    clock.advance(HOUR_MS)
    assert send(guard, phone(1, 22)) == ""


def test_the_budget_of_a_day(guard: Guard, clock: Clock) -> None:
    """A82: a thousand a day, the last hundred for known devices, however they are spread."""
    day_ms = 24 * HOUR_MS
    clock.advance(-clock.now_ms % day_ms)
    sent = []
    for hour in range(6):
        for number in range(180):
            to = phone(number, 20 * hour + number // 20)
            sent.append(send(guard, to, number))
            entered(guard, to, number)  # so that the guard on ignored codes stops nothing
        clock.advance(HOUR_MS)
    assert sent.count("") == 900
    assert set(sent) == {"", "budget"}
    assert send(guard, phone(1, 200), device="known") == ""


def ask_fifty(guard: Guard, clock: Clock, *, enter: int) -> None:
    """Send fifty codes to one range over two hours, and enter some of them."""
    for number in range(50):
        assert send(guard, phone(number), number) == ""
        if number % 5 == 0 and number // 5 < enter:
            entered(guard, phone(number), number)
        if number == 29:
            clock.advance(HOUR_MS)
    clock.advance(LIFE_MS)


def test_a_range_where_codes_are_ignored_stops(guard: Guard, clock: Clock) -> None:
    """A80: nine of fifty entered stop range and country for 24 hours; the first one sets both."""
    ask_fifty(guard, clock, enter=9)
    both = "range-conversion country-conversion"
    assert [send(guard, phone(60)), send(guard, phone(61))] == [both, both]
    assert send(guard, phone(1, 1)) == "country-conversion"
    assert send(guard, read_phone("+4740000001")) == ""
    guard.message("otp.send", destination=MAIL)
    clock.advance(24 * HOUR_MS - 1)
    assert send(guard, phone(62)) == both
    clock.advance(1)
    assert send(guard, phone(62)) == ""


def test_a_range_where_codes_are_entered_goes_on(guard: Guard, clock: Clock) -> None:
    """A80: ten of fifty entered are a fifth, and stop nothing."""
    ask_fifty(guard, clock, enter=10)
    assert [send(guard, phone(number), number) for number in range(60, 65)] == [""] * 5


def test_a_code_is_entered_once(guard: Guard, clock: Clock) -> None:
    """A80: telling of one code again and again, or of none that was sent, saves no range."""
    for number in range(50):
        send(guard, phone(number), number)
        if number == 29:
            clock.advance(HOUR_MS)
    for number in (49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 777, 778):
        entered(guard, phone(49), number)
    clock.advance(LIFE_MS)
    assert send(guard, phone(60)) == "range-conversion country-conversion"


def test_a_number_of_no_country_has_its_range_alone(guard: Guard) -> None:
    """A81: a satellite's number counts by its range and the budget; no country is made up."""
    verdicts = guard.message("otp.send", destination=read_phone("+881612345678")).decision.verdicts
    names = [each.name for each in verdicts]
    assert ("range" in names, "budget" in names, "country-conversion" in names) == (
        True,
        True,
        False,
    )


def test_no_verdict_is_no_message(
    own_valkey: EmbeddedValkey, guard_factory: Callable[..., Guard]
) -> None:
    """Without a verdict of the store a message must not be sent, and is not told as entered."""
    guard = guard_factory(store=own_valkey.url)
    send(guard, phone(1))
    os.kill(own_valkey.pid, signal.SIGKILL)
    with pytest.raises(StoreUnavailable):
        send(guard, phone(1))
    with pytest.raises(StoreUnavailable):
        entered(guard, phone(1), 1)
