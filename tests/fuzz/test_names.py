"""
Any name, address or number: one spelling that stays as it is, or our own refusal.

And what is made of them: keys of one length and alphabet, no two pairs of names sharing one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hypothesis import strategies as st

from authguard import Denied, Guard, InvalidInput, SlidingLog, default_policies
from authguard._core.keys import Shape
from authguard.checks import is_unicode
from authguard.identity import (
    Email,
    Phone,
    Pseudonyms,
    normalise_account,
    normalise_case_sensitive,
    normalise_identifier,
    normalise_precis,
    read_address,
    read_destination,
    read_email,
    read_phone,
)
from authguard.identity.addresses import DEFAULT_PREFIXES, counted_address
from authguard.limits import heeds_pardon
from authguard.stores.memory import MemoryStore
from tests.conftest import SECRET
from tests.fuzz.conftest import fuzzed, mostly

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.identity import Normaliser

T = TypeVar("T")

KEY: Final = re.compile(r"rl:v1:\{[A-Za-z0-9_-]{8}\}[A-Za-z0-9_-]{22}[!~+]?")

NORMALISERS: Final = {
    "default": normalise_account,
    "case-sensitive": normalise_case_sensitive,
    "PRECIS": normalise_precis,
}
normalisers = st.sampled_from([*NORMALISERS])

#: Characters that Unicode's forms, cases and directions treat unlike others.
strange = st.sampled_from(
    [
        *("\u00df", "\u0130", "\u0131", "\u017f", "\u03c2", "\u0345", "\u1e9e", "\ufb01", "\u212b"),
        *("\u0301", "\u0323", "\u093c", "\u1100", "\u1161", "\u11a8", "\uff21", "\uff20", "\uff0e"),
        *("\u3002", "\u05d0", "\u0661", "\u06f1", "\u200d", "\u00ad", "\u2126", "\u00a8", "\u037a"),
        *("\ufdfa", "\U0001d400", "\U0001f600", "\ud800", "\0", "\n", "\u00a0", "\u3000", "\u2800"),
    ]
)
characters = mostly(st.sampled_from("veraVERA019._-+ "), st.one_of(strange, st.text(max_size=2)))
words = st.lists(characters).map("".join)
names = mostly(words, st.one_of(st.text(max_size=260), words.map(lambda word: word * 40)))

odd_labels = st.sampled_from(
    ["xn--bcher-kva", "xn--", "xn--a", "xn--99999999", "-a", "a" * 63, "", "[::1]"]
)
labels = mostly(
    st.sampled_from(["example", "gmail", "googlemail", "EXAMPLE", "b\u00fccher", "fa\u00df"]),
    st.one_of(words, odd_labels),
)
domains = st.builds(
    "{}{}{}{}".format,
    labels,
    mostly(st.just("."), st.sampled_from(["\u3002", "\uff0e", "..", ""])),
    mostly(st.sampled_from(["com", "test", "COM", "de"]), labels),
    mostly(st.just(""), st.sampled_from([">", " ", ".", "\n"])),
)
written = st.builds(
    "{}{}{}{}".format,
    mostly(st.just(""), st.sampled_from([" ", "<", '"', "Vera <", "\u200b"])),
    mostly(words.map(lambda word: word[:20].strip()), st.sampled_from(['"a b"', "a..b", "+", ""])),
    mostly(st.just("@"), st.sampled_from(["\uff20", "@@", "@a@", "%"])),
    domains,
)

#: Addresses that are none as they are typed, and are some once they are casefolded; the first one
#: is too long before.
LONG_LABEL: Final = "".join(map(chr, range(0x4E00, 0x9E00, 1200)))
shifting = st.sampled_from(
    [
        "\u1e9e" * 25 + "@" + f"{LONG_LABEL}." * 3 + "com",
        *("\u0345@b\u00fccher.test", "v@\u0345x.test", "v\uff20b\u00fccher.test"),
    ]
)
emails = mostly(written, shifting)

digits = st.text(st.sampled_from("0123456789"), min_size=4, max_size=12)
between = st.sampled_from(["", " ", "-", "(0)", "/", ".", "\u00a0"])
countries = ["1", "7", "39", "44", "49", "52", "54", "55", "81", "383", "800", "999", "\u0661"]
phones = st.builds(
    "{}{}{}{}{}{}".format,
    mostly(st.sampled_from(["+", " +"]), st.sampled_from(["00", "", "\uff0b", "++", "("])),
    st.sampled_from(countries),
    between,
    st.sampled_from(["", "0", "00", "000", "1", "11", "9", "15"]),
    mostly(digits, digits.map(lambda text: "".join(chr(0x0660 + int(each)) for each in text))),
    mostly(st.just(""), st.sampled_from([";ext=12", ";ext=", "x12", " #", "0" * 240, "\u0661"])),
)

bare = st.one_of(
    st.ip_addresses().map(str), st.sampled_from(["::ffff:1.2.3.4", "2002::", "64:ff9b::", "::"])
)
ends = st.sampled_from(["%", "%eth0", "%\ud800", "%%", "/64", ":1", "\0", " ", "."])
addresses = st.one_of(bare, st.builds("{}{}".format, bare, st.one_of(ends, st.text())), names)

anything = st.one_of(names, emails, phones, addresses)
foreign = st.one_of(
    *(st.none(), st.integers(), st.floats(), st.booleans(), st.binary()),
    *(st.lists(names, max_size=1), st.ip_addresses()),
)


def read(reader: Callable[[], T]) -> T | None:
    """Give what is read; None if it is refused."""
    try:
        return reader()
    except InvalidInput:
        return None


@fuzzed(quick=400, deep=10_000, which=normalisers, name=mostly(anything, foreign))
def test_any_name_has_one_spelling_or_is_refused(which: str, name: Any) -> None:
    """A17: every normaliser gives a spelling that it leaves as it is, or refuses the name."""
    normalise = NORMALISERS[which]
    once = read(lambda: normalise(name))
    if once is not None:
        assert normalise(once) == once
        assert 1 <= len(once) <= 254
        assert once.encode().decode() == once


regions = st.sampled_from([None, "DE", "US", "IT", "AR", "MX", "BR", "GB", "JP"])


@fuzzed(
    quick=400,
    deep=10_000,
    which=normalisers,
    text=mostly(st.one_of(names, emails, phones), foreign),
    region=regions,
)
def test_any_identifier_has_one_spelling_or_is_refused(
    which: str, text: Any, region: str | None
) -> None:
    """What a name, an address or a number is spelt as is spelt so again, or it is refused."""
    normalise: Normaliser = NORMALISERS[which]

    def spell(text: Any) -> str:
        return normalise_identifier(text, region=region, normalise=normalise)

    once = read(lambda: spell(text))
    if once is not None:
        assert spell(once) == once
        assert normalise(once) == once


@fuzzed(
    quick=400, deep=10_000, text=mostly(emails, st.one_of(anything, foreign)), fold=st.booleans()
)
def test_any_email_has_one_spelling_or_is_refused(text: Any, *, fold: bool) -> None:
    """An e-mail address is read as one that is read as itself, or it is refused."""
    email = read(lambda: read_email(text, fold=fold))
    if email is not None:
        assert read_email(email.address, fold=fold) == email


@fuzzed(quick=400, deep=10_000, text=mostly(phones, st.one_of(anything, foreign)), region=regions)
def test_any_phone_number_has_one_spelling_or_is_refused(text: Any, region: str | None) -> None:
    """A phone number is read as one that is read as itself, or it is refused."""
    phone = read(lambda: read_phone(text, region=region))
    if phone is not None:
        assert re.fullmatch(r"\+[1-9][0-9]+", phone.number)
        assert read_phone(phone.number) == phone


@fuzzed(quick=400, deep=10_000, text=mostly(anything, foreign))
def test_any_destination_is_one_of_two_or_refused(text: Any) -> None:
    """A destination is an e-mail address or a phone number, or it is refused."""
    found = read(lambda: read_destination(text))
    assert found is None or isinstance(found, Email | Phone)


@fuzzed(quick=400, deep=10_000, text=addresses)
def test_any_address_has_one_spelling_or_is_none(text: str) -> None:
    """An IP address is read as one that is read as itself, or it is none."""
    try:
        ip = read_address(text)
    except ValueError:
        return
    assert read_address(str(ip)) == ip


PSEUDONYMS: Final = Pseudonyms(SECRET)
SHAPE: Final = Shape.of(default_policies()["login"], frozenset({"account", "client", "network"}))

valid = st.text(st.characters(codec="utf-8"))


@st.composite
def alike(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Draw pairs that are easily taken for each other: one text, divided at every place."""
    text = draw(st.one_of(valid, st.text("0123456789:,", max_size=12)))
    pairs = {(text[:at], text[at:]) for at in range(len(text) + 1)}
    return sorted(pairs | {(two, one) for one, two in pairs} | {draw(st.tuples(valid, valid))})


@fuzzed(quick=150, deep=5_000, pairs=alike())
def test_no_two_pairs_share_a_key(pairs: list[tuple[str, str]]) -> None:
    """Keys are of one length and alphabet, each of one limit, for one pair of names alone."""
    owners: dict[str, tuple[str, ...]] = {}
    for account, client in pairs:
        values = {"account": account, "client": client, "network": client}
        of = {part: PSEUDONYMS.of(part, value) for part, value in values.items()}
        keys = iter(SHAPE.bind(of).keys)
        for limit in SHAPE.limits:
            owner = limit.name, *(values[part] for part in limit.by)
            for suffix in ("", "!") if limit.algorithm.lockout_ms else ("",):
                key = next(keys)
                assert KEY.fullmatch(key)
                assert key.endswith(suffix)
                assert owners.setdefault(key, owner) == owner
            if heeds_pardon(limit.by):  # one for all pairs of an account
                assert owners.setdefault(next(keys), ("pardon", account)) == ("pardon", account)
        assert list(keys) == []
    assert len({owner for owner in owners.values() if owner[0] == "pair"}) == len(pairs)


class Asked(MemoryStore):
    """A store that keeps the keys it was asked for last."""

    keys: tuple[str, ...] = ()

    def run(self, call: Any) -> Any:
        """Run a call."""
        self.keys = call.keys
        return super().run(call)


STORE: Final = Asked(lambda: 1_800_000_000_000)
GUARD: Final = Guard(STORE, secret=SECRET, remember_refusals_ms=0)


def pair_key(account: Any, client: str) -> str:
    """Give the key of the default profile's first limit, by account and client."""
    with suppress(Denied):
        GUARD.attempt("login", account=account, client=client)
    assert all(KEY.fullmatch(key) for key in STORE.keys)
    return next(key for key in STORE.keys if not key.endswith("+"))


@fuzzed(
    quick=400,
    deep=10_000,
    account=mostly(names, st.one_of(emails, foreign)),
    clients=st.tuples(addresses, addresses),
)
def test_a_request_has_the_keys_of_its_account_and_client(
    account: Any, clients: tuple[str, str]
) -> None:
    """Two requests share a pair's key if account and client are the same, and only then."""
    one, two = (read(lambda client=client: pair_key(account, client)) for client in clients)
    if one is None or two is None:
        return
    networks = [
        DEFAULT_PREFIXES["client"].of(counted_address(read_address(client))) for client in clients
    ]
    assert (one == two) == (networks[0] == networks[1])
    spelt = normalise_account(account)
    assert pair_key(spelt, clients[0]) == one
    assert pair_key(f"{spelt[:250]}x1", clients[0]) != one


@fuzzed(quick=100, deep=3_000, key=st.one_of(st.text(), strange), other=st.text())
def test_any_text_is_the_key_of_a_limiter(key: str, other: str) -> None:
    """A limiter keyed by any text has a key of its own for each, or refuses what is no Unicode."""
    limiter = GUARD.limiter(SlidingLog("5/15m"))
    asked = []
    for text in (key, other):
        if read(lambda text=text: limiter.peek(text)) is None:
            assert not is_unicode(text)
            return
        asked.append(STORE.keys)
    assert all(KEY.fullmatch(name) for names in asked for name in names)
    assert (asked[0] == asked[1]) == (key == other)
