"""Names and addresses: one spelling each, and nothing raw beyond it."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authguard import ConfigurationError, InvalidInput
from authguard.identity import Pseudonyms, address_parts, normalise_account


@pytest.mark.parametrize(
    "spelling",
    [
        "vera",
        "Vera",
        "VERA",
        " vera ",
        "\tvera\r\n",
        "\u00a0vera\u3000",
        "\uff56\uff45\uff52\uff41",
        "\u1d5bera",
    ],
)
def test_one_account_many_spellings(spelling: str) -> None:
    """A14, A15, A16: case, blanks and compatibility forms of a name count as one account."""
    assert normalise_account(spelling) == "vera"


def test_normalising_twice_equals_once_for_every_code_point() -> None:
    """A17: no code point gives a second spelling when it is normalised again."""
    for number in range(sys.maxunicode + 1):
        try:
            once = normalise_account(f"a{chr(number)}b")
        except InvalidInput:
            continue
        assert normalise_account(once) == once
        assert unicodedata.is_normalized("NFKC", once)


@given(st.text(max_size=260))
def test_any_text_is_normalised_or_refused(text: str) -> None:
    """Whatever a client sends is one stable spelling or InvalidInput, never another error."""
    try:
        once = normalise_account(text)
    except InvalidInput:
        return
    assert normalise_account(once) == once
    assert 1 <= len(once) <= 254


@pytest.mark.parametrize(
    "name",
    ["", "   ", "\u3000", None, 5, True, ["vera"], b"vera", "a" * 255, "ve\x00ra", "ve\u200bra",
     "ve\u00adra", "ve\u115fra", "ve\ufe0fra", "vera\u3164",
     "ve\u034fra", "\ufeffvera", "ve\u202era", "\ud800", "a\nb"],
)  # fmt: skip
def test_a_name_that_is_none_is_refused(name: object) -> None:
    """A18, A25, A26, A27: empty, foreign, over-long, invisible or broken names share no key."""
    with pytest.raises(InvalidInput) as refused:
        normalise_account(name)
    assert refused.value.field == "account"


def test_the_cap_counts_before_and_after_normalising() -> None:
    """A29: 254 ligatures that grow 18-fold are refused; 254 plain characters are not."""
    assert len(normalise_account("a" * 254)) == 254
    with pytest.raises(InvalidInput):
        normalise_account("\ufdfa" * 254)


def test_the_message_never_holds_the_name() -> None:
    """A refused name is not repeated in the error."""
    with pytest.raises(InvalidInput) as refused:
        normalise_account("secret\x00name")
    assert "secret" not in str(refused.value)


def test_confusables_stay_apart() -> None:
    """A19, A20: a Cyrillic a and a dotless i are other accounts, not a way to hers."""
    assert normalise_account("\u0430lice") != normalise_account("alice")
    assert normalise_account("m\u0131ke") != normalise_account("mike")


@pytest.mark.parametrize(
    ("address", "client", "network"),
    [
        ("203.0.113.9", "203.0.113.9/32", "203.0.113.0/24"),
        ("::ffff:203.0.113.9", "203.0.113.9/32", "203.0.113.0/24"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:DB8:1:2:0::99", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/64", "fe80::/48"),
    ],
)
def test_an_address_counts_as_its_client_and_network(
    address: str, client: str, network: str
) -> None:
    """A09, A11: IPv4 /32 and /24, IPv6 /64 and /48, mapped addresses folded, zones stripped."""
    host, net = address_parts(address)
    assert (host if "/" in host else f"{host}/32", net) == (client, network)


@pytest.mark.parametrize(
    "address", [None, "", "None", "unknown", "203.0.113.9:443", 5, b"\x7f", "::g"]
)
def test_what_is_no_address_is_refused(address: object) -> None:
    """A client without a usable address is refused, never keyed by what it says."""
    with pytest.raises(InvalidInput) as refused:
        address_parts(address)
    assert refused.value.field == "client"


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_no_two_values_meet_in_one_pseudonym(one: tuple[str, str], other: tuple[str, str]) -> None:
    """A30: fields are length-prefixed, so different part and value never make one pseudonym."""
    pseudonyms = Pseudonyms("a secret of the tests, 32 bytes or more")

    def of(pair: tuple[str, str]) -> bytes | None:
        try:
            return pseudonyms.of(*pair)
        except UnicodeEncodeError:
            return None  # lone surrogates never get past normalise_account

    assert (of(one) == of(other)) is (one == other) or None in (of(one), of(other))


@pytest.mark.parametrize(
    "secret", ["", "short", "x" * 64, "ab" * 32, "changeme-changeme-0123456789abcdef", b"", None, 5]
)
def test_a_weak_secret_stops_the_start(secret: object) -> None:
    """A missing, short or one-character secret is a configuration error that names the mend."""
    with pytest.raises(ConfigurationError, match=r"AG011 secret: .*secrets\.token_urlsafe"):
        Pseudonyms(secret)  # type: ignore[arg-type]


def test_a_secret_never_shows() -> None:
    """The secret is in no repr."""
    assert "tests" not in repr(Pseudonyms("a secret of the tests, 32 bytes or more"))
