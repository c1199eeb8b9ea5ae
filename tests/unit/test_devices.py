"""Device cookies by themselves: signed, bound to account and stamp, small, and telling nothing."""

from __future__ import annotations

import base64
import re
import secrets
from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import URLSafeTimedSerializer

from authguard import ConfigurationError
from authguard.devices import DEVICE_LIFE_S, DeviceCookies

SECRET = "of the device tests: 0123456789abcdef"
NEWER = "of the year after it: 0123456789abcde"
COOKIES = DeviceCookies(SECRET)
VERA = {"account": "key-1", "stamp": "stamp"}


def issue(cookie: str | None = None, keep: str | None = None, **whose: str) -> str:
    """Make vera's cookie, or another's."""
    return COOKIES.issue(cookie, **(VERA | whose), keep=keep)


def entries(cookie: str) -> object:
    """Give what a cookie holds, as everybody can read it."""
    _, payload = URLSafeTimedSerializer("of nobody").loads_unsafe(cookie)
    return payload


def test_it_is_read_back() -> None:
    """A cookie gives the device's id, 128 random bits, and the same at each reading."""
    first, second = issue(), issue()
    device = COOKIES.read(first, **VERA)
    assert device is not None
    assert len(base64.urlsafe_b64decode(device + "==")) == 16
    assert COOKIES.read(first, **VERA) == device
    assert COOKIES.read(second, **VERA) not in (None, device)


@pytest.mark.parametrize(
    "whose",
    [
        {"account": "key-2", "stamp": "stamp"},
        {"account": "key-1", "stamp": "stamp'"},
        {"account": "key-1s", "stamp": "tamp"},
        {"account": "", "stamp": ""},
        {"account": "KEY-1", "stamp": "stamp"},
    ],
)
def test_it_is_bound_to_account_and_stamp(whose: dict[str, str]) -> None:
    """A59: it is nothing to another account, nor after the stamp has changed."""
    assert COOKIES.read(issue(), **whose) is None


def test_a_kept_id_stays() -> None:
    """A device that signs in again keeps its id, and so its failures."""
    device = COOKIES.read(issue(), **VERA)
    assert COOKIES.read(issue(keep=device), **VERA) == device


def test_accounts_of_one_browser() -> None:
    """Eight accounts fit into one browser; the one that signed in longest ago makes room."""
    cookie = None
    for number in range(9):
        cookie = issue(cookie, account=f"key-{number}")
    known = [COOKIES.read(cookie, account=f"key-{n}", stamp="stamp") for n in range(9)]
    assert known[0] is None
    assert None not in known[1:]
    assert cookie is not None
    assert len(cookie) < 1_024


def test_an_account_takes_one_place() -> None:
    """Signing in again replaces the account's own entry and leaves the others'."""
    cookie = issue(account="key-2")
    for _ in range(20):
        cookie = issue(cookie)
    assert len(list(entries(cookie))) == 2  # type: ignore[call-overload]
    assert COOKIES.read(cookie, account="key-2", stamp="stamp") is not None


def test_the_cookie_tells_nothing() -> None:
    """A59: no account key, stamp or secret stands in it."""
    text = repr(entries(issue(account="vera@example.test", stamp="a stamp of hers")))
    assert not re.search(r"vera|example|hers|device tests", text)


def test_another_secret_or_purpose_is_none() -> None:
    """A59: what another secret signed, or ours for another purpose, is nothing."""
    assert DeviceCookies(NEWER).read(issue(), **VERA) is None
    payload = entries(issue())
    session = URLSafeTimedSerializer(SECRET, salt="cookie-session").dumps(payload)
    assert COOKIES.read(session, **VERA) is None


def test_every_change_is_seen() -> None:
    """A59: with any one character changed, taken away or put in, it is nothing."""
    cookie = issue()
    for at, letter in enumerate(cookie):
        other = "A" if letter != "A" else "Z"  # not B: the last letter has idle bits
        for bent in (
            cookie[:at] + other + cookie[at + 1 :],
            cookie[:at] + cookie[at + 1 :],
            cookie[:at] + other + cookie[at:],
        ):
            assert COOKIES.read(bent, **VERA) is None or bent == cookie


@given(st.text(max_size=300))
def test_no_text_is_an_error(text: str) -> None:
    """Whatever a browser sends is read without an error, and is nothing."""
    assert COOKIES.read(text, **VERA) is None
    assert COOKIES.read(COOKIES.issue(text, **VERA, keep=None), **VERA) is not None


def test_a_long_cookie_is_not_looked_at() -> None:
    """More than eight entries ever take is nothing, however it is signed."""
    ours = URLSafeTimedSerializer(SECRET, salt="authguard device v1")
    known = list(entries(issue()))  # type: ignore[call-overload]
    assert COOKIES.read(str(ours.dumps(known)), **VERA) is not None
    long = ours.dumps([*known, *(["x", secrets.token_hex()] for _ in range(60))])
    assert len(long) > 2_048
    assert COOKIES.read(str(long), **VERA) is None


@pytest.mark.parametrize(("age_s", "known"), [(DEVICE_LIFE_S, True), (DEVICE_LIFE_S + 1, False)])
def test_it_lives_a_year(age_s: int, known: bool) -> None:
    """A59: 365 days to the second; from then on it is neither read nor carried over."""
    begun = datetime(2026, 3, 1, tzinfo=UTC)
    with freeze_time(begun):
        cookie = issue()
    with freeze_time(begun + timedelta(seconds=age_s)):
        assert (COOKIES.read(cookie, **VERA) is not None) is known
        renewed = issue(cookie, account="key-2")
        assert (COOKIES.read(renewed, **VERA) is not None) is known


def test_a_new_secret_signs_and_the_old_is_believed() -> None:
    """With two secrets both cookies are read, a renewed one keeps one entry, the newest signs."""
    both, old = DeviceCookies([NEWER, SECRET]), issue()
    device = both.read(old, **VERA)
    assert device is not None
    renewed = both.issue(old, **VERA, keep=device)
    assert len(list(entries(renewed))) == 1  # type: ignore[call-overload]
    assert DeviceCookies(NEWER).read(renewed, **VERA) == device
    assert COOKIES.read(renewed, **VERA) is None
    assert DeviceCookies(NEWER).read(old, **VERA) is None


@pytest.mark.parametrize("secret", ["", "short", None, [], [SECRET, SECRET]])
def test_a_weak_secret_is_none(secret: object) -> None:
    """AG011: no cookie is signed with what is no secret."""
    with pytest.raises(ConfigurationError, match="AG011 secret"):
        DeviceCookies(secret)  # type: ignore[arg-type]
