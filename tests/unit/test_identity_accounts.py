"""The names of accounts: one spelling each, or a refusal."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authguard import InvalidInput
from authguard.identity import (
    Normaliser,
    normalise_account,
    normalise_case_sensitive,
    normalise_precis,
)

ALL = pytest.mark.parametrize(
    "normalise",
    [normalise_account, normalise_case_sensitive, normalise_precis],
    ids=["default", "case-sensitive", "PRECIS"],
)


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


@pytest.mark.parametrize(
    "normalise",
    [
        normalise_account,
        normalise_case_sensitive,
        normalise_precis,
    ],
    ids=["default", "case-sensitive", "PRECIS"],
)
@pytest.mark.slow
def test_normalising_twice_equals_once_for_every_code_point(normalise: Normaliser) -> None:
    """A17: no code point gives a second spelling when it is normalised again, by no normaliser."""
    taken = 0
    for number in range(sys.maxunicode + 1):
        try:
            once = normalise("{0}a{0}b{0}".format(chr(number)))  # first, inside, last
        except InvalidInput:
            continue
        taken += 1
        assert normalise(once) == once
        assert unicodedata.is_normalized("NFC", once)
    assert taken > 100_000


@ALL
@given(text=st.text(max_size=260))
def test_any_text_is_normalised_or_refused(normalise: Normaliser, text: str) -> None:
    """Whatever a client sends is one stable spelling or InvalidInput, never another error."""
    try:
        once = normalise(text)
    except InvalidInput:
        return
    assert normalise(once) == once
    assert 1 <= len(once) <= 254


@pytest.mark.parametrize(
    "name",
    ["", "   ", "\u3000", None, 5, True, ["vera"], b"vera", "a" * 255, "ve\x00ra", "ve\u200bra",
     "ve\u00adra", "ve\u115fra", "ve\ufe0fra", "vera\u3164",
     "ve\u034fra", "\ufeffvera", "ve\u202era", "\ud800", "a\nb"],
)  # fmt: skip
@ALL
def test_a_name_that_is_none_is_refused(normalise: Normaliser, name: object) -> None:
    """A18, A25, A26, A27: empty, foreign, over-long, invisible or broken names share no key."""
    with pytest.raises(InvalidInput) as refused:
        normalise(name)
    assert refused.value.field == "account"


def test_the_cap_counts_before_and_after_normalising() -> None:
    """A29: 254 ligatures that grow 18-fold are refused; 254 plain characters are not."""
    assert len(normalise_account("a" * 254)) == 254
    with pytest.raises(InvalidInput):
        normalise_account("\ufdfa" * 254)


@ALL
@pytest.mark.parametrize("name", ["secret\x00name", "secret" * 50, "secret\ud800"])
def test_the_message_never_holds_the_name(normalise: Normaliser, name: str) -> None:
    """A refused name is not repeated in the error, nor in one that stands behind it."""
    with pytest.raises(InvalidInput) as caught:
        normalise(name)
    refused = caught.value
    assert "secret" not in str(refused)
    assert refused.__context__ is None


def test_case_is_kept_where_it_tells_accounts_apart() -> None:
    """The case-sensitive normaliser keeps case, and folds blanks and compatibility forms."""
    assert normalise_case_sensitive(" \uff36era ") == "Vera"
    assert normalise_case_sensitive("Vera") != normalise_case_sensitive("vera")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("Vera", "vera"),
        (" VERA@Example.test ", "vera@example.test"),
        ("\uff36\uff25\uff32\uff21", "vera"),
        ("ju\u0308rgen", "j\u00fcrgen"),
        ("\u212a", "k"),
        ("ve ra", None),
        ("\u24e5era", None),
        ("\u265avera", None),
        ("\u05d0a", None),
    ],
)
def test_precis_is_rfc_8265(typed: str, expected: str | None) -> None:
    """UsernameCaseMapped: width and case mapped, NFC; blanks, symbols, mixed direction refused."""
    if expected is not None:
        assert normalise_precis(typed) == expected
        return
    with pytest.raises(InvalidInput, match="account: ") as refused:
        normalise_precis(typed)
    assert refused.value.__context__ is None  # the library's error holds the name


def test_an_apps_own_normaliser_is_held_to_the_same_rules() -> None:
    """B042: what an app's function gives is trimmed and checked; its refusals are InvalidInput."""

    def digits(text: str) -> str:
        if text == "none":
            raise ValueError(text)
        return "".join(character for character in text if character.isdecimal())

    phone = Normaliser(digits)
    spellings = ["+47 400 00 001", "+4740000001", "47-400-00-001"]
    assert {phone(spelling) for spelling in spellings} == {"4740000001"}
    for bad in ("none", "no digits at all", "12\u200b34", "1" * 255, 5, None):
        with pytest.raises(InvalidInput) as refused:
            phone(bad)
        assert str(bad) not in str(refused.value).removeprefix("account: ") or bad == ""
    with pytest.raises(InvalidInput, match="at most 254"):
        Normaliser(lambda text: text * 300)("ab")
    with pytest.raises(InvalidInput, match="invisible"):
        Normaliser(lambda text: f"{text}\u200bb")("ab")
    with pytest.raises(TypeError, match="NoneType"):
        Normaliser(lambda _text: None)("ab")  # type: ignore[arg-type, return-value]


def test_confusables_stay_apart() -> None:
    """A19, A20: a Cyrillic a and a dotless i are other accounts, not a way to hers."""
    assert normalise_account("\u0430lice") != normalise_account("alice")
    assert normalise_account("m\u0131ke") != normalise_account("mike")
