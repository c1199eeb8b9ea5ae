"""E-mail addresses, phone numbers and names of any kind: one spelling each."""

from __future__ import annotations

from functools import partial

import pytest

from authguard import ConfigurationError, InvalidInput
from authguard.identity import (
    Email,
    Normaliser,
    Phone,
    normalise_case_sensitive,
    normalise_identifier,
    normalise_precis,
    read_destination,
    read_email,
    read_phone,
)

#: +4740000001 in Arabic-Indic digits.
ARABIC = "+\u0664\u0667\u0664\u0660\u0660\u0660\u0660\u0660\u0660\u0661"


@pytest.mark.parametrize(
    ("typed", "address", "mailbox"),
    [
        ("vera@example.test", "vera@example.test", "vera@example.test"),
        (" Vera@EXAMPLE.Test ", "Vera@example.test", "vera@example.test"),
        ("x@M\u00dcNCHEN.de", "x@xn--mnchen-3ya.de", "x@xn--mnchen-3ya.de"),
        ("x@xn--mnchen-3ya.de", "x@xn--mnchen-3ya.de", "x@xn--mnchen-3ya.de"),
        ("V.i.c+news@gmail.com", "V.i.c+news@gmail.com", "vic@gmail.com"),
        ("vic@googlemail.com", "vic@googlemail.com", "vic@gmail.com"),
        ("v.i.c+a@outlook.com", "v.i.c+a@outlook.com", "v.i.c@outlook.com"),
        ("vic+a@pm.me", "vic+a@pm.me", "vic@proton.me"),
        ("vic+a@icloud.com", "vic+a@icloud.com", "vic@icloud.com"),
        ("v.i.c+a@corp.example", "v.i.c+a@corp.example", "v.i.c+a@corp.example"),
        ("+a@gmail.com", "+a@gmail.com", "+a@gmail.com"),
        ("m\u0131ke@example.org", "m\u0131ke@example.org", "m\u0131ke@example.org"),
        ("\uff41@example.org", "\uff41@example.org", "a@example.org"),
    ],
)
def test_an_email_has_one_spelling_and_a_mailbox(typed: str, address: str, mailbox: str) -> None:
    """A20, A21, A22: the domain in ASCII, the mailbox as its provider delivers; no name is bent."""
    assert read_email(typed) == Email(address, mailbox)
    assert read_destination(typed) == Email(address, mailbox)


def test_folding_is_an_option() -> None:
    """Without folding, only letter case and the domain's spelling are evened out."""
    assert read_email("V.ic+1@Googlemail.com", fold=False).mailbox == "v.ic+1@googlemail.com"


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "  ", "vera", "@example.test", "vera@", "a@b@c.example", "a@ex..com", "a@ex.com."),
        *("a@x.example,b@y.example", "a@ex.com\nBcc: b@x.com", "a b@ex.com", "a@[127.0.0.1]"),
        *('"a b"@ex.com', "Vera <vera@example.test>", "a@localhost", "a\u200b@ex.com"),
        *("\ud800@x.de", "a@" + "b" * 64 + ".com", "a" * 300, 5, None, b"a@ex.com"),
    ],
)  # fmt: skip
def test_what_is_no_email_is_refused(wrong: object) -> None:
    """A22, A76: one address or InvalidInput, whose text holds nothing of what was typed."""
    with pytest.raises(InvalidInput) as refused:
        read_email(wrong)
    assert refused.value.field == "email"
    assert not isinstance(wrong, str) or len(wrong) < 5 or wrong not in str(refused.value)
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    ("typed", "region", "number", "number_range", "country"),
    [
        ("+14155550101", None, "+14155550101", "+1415555", "US"),
        ("+1 (415) 555-0101", None, "+14155550101", "+1415555", "US"),
        ("\uff0b1 415 555 0101", None, "+14155550101", "+1415555", "US"),
        ("+14155550101 ext. 12", None, "+14155550101", "+1415555", "US"),
        ("+1 415 555 0101 x12", None, "+14155550101", "+1415555", "US"),
        ("+14155550101 Extension 12", None, "+14155550101", "+1415555", "US"),
        ("+14155550101;ext=12", None, "+14155550101", "+1415555", "US"),
        ("415-555-0101", "US", "+14155550101", "+1415555", "US"),
        ("(+47) 400 00 001", None, "+4740000001", "+474000", "NO"),
        ("+1 604 555 0101", None, "+16045550101", "+1604555", "CA"),
        ("+47 400 00 001", None, "+4740000001", "+474000", "NO"),
        ("0047-400-00-001", "GB", "+4740000001", "+474000", "NO"),
        ("400 00 001", "NO", "+4740000001", "+474000", "NO"),
        ("0015550100000", "DE", "+15550100000", "+1555010", None),
        ("+883510000000", None, "+883510000000", "+88351000", None),
        (ARABIC, None, "+4740000001", "+474000", "NO"),
    ],
)  # fmt: skip
def test_a_phone_has_one_spelling_a_range_and_a_country(
    typed: str, region: str | None, number: str, number_range: str, country: str | None
) -> None:
    """A23, B042: E.164, its range without the last four digits, and the country for SMS."""
    assert read_phone(typed, region=region) == Phone(number, number_range, country)


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "  ", "phone", "+", "+47", "+1555", "0015550100000", "415-555-0101", "+999123456789"),
        *("+1415555010112345", "+1-800-FLOWERS", "tel:+14155550101", "+14155550101, +14155550102"),
        *("+1415\u200b5550101", "+14155550101\n+14155550102", "x" * 300, 5, None, b"+14155550101"),
    ],
)
def test_what_is_no_phone_is_refused(wrong: object) -> None:
    """A23: E.164 or InvalidInput; a number without its country's code needs a region."""
    with pytest.raises(InvalidInput) as refused:
        read_phone(wrong)
    assert refused.value.field == "phone"


def test_a_region_that_is_none_is_told() -> None:
    """A misspelt region would refuse every local number: it is the caller's fault, and said so."""
    with pytest.raises(ConfigurationError, match="AG037 region: 'USA' is no"):
        read_phone("415-555-0101", region="USA")
    spell = Normaliser(partial(normalise_identifier, region="us"))
    with pytest.raises(ConfigurationError, match="AG037"):
        spell("+14155550101")


def test_a_number_without_its_area_code_is_none() -> None:
    """A23: what people dial within a town has no E.164 form, and is not taken for one."""
    with pytest.raises(InvalidInput):
        read_phone("555-0101", region="US")


@pytest.mark.parametrize(
    ("typed", "region", "expected"),
    [
        (" Vera ", None, "vera"),
        ("VERA@Example.TEST", None, "vera@example.test"),
        ("vera@M\u00fcnchen.de", None, "vera@xn--mnchen-3ya.de"),
        ("+1 (415) 555-0101", None, "+14155550101"),
        ("415 555 0101", "US", "+14155550101"),
        ("415 555 0101", None, "415 555 0101"),
        ("1234", "US", "1234"),
        ("@vera", None, "@vera"),
        ("vera@@example", None, "vera@@example"),
        ("+vera", None, "+vera"),
        ("vera+1@gmail.com", None, "vera+1@gmail.com"),
    ],
)
def test_a_name_of_any_kind_has_one_spelling(typed: str, region: str | None, expected: str) -> None:
    """A22, A23, A24: addresses and numbers by their rules, all else as a username; no folding."""
    assert normalise_identifier(typed, region=region) == expected
    assert normalise_identifier(expected, region=region) == expected


def test_names_of_any_kind_take_the_apps_normaliser() -> None:
    """Where case tells accounts apart it is kept, a domain's never; what it refuses is refused."""
    kept = normalise_identifier("Vera@Example.TEST", normalise=normalise_case_sensitive)
    assert kept == "Vera@example.test"
    with pytest.raises(InvalidInput):
        normalise_identifier("\u24e5era", normalise=normalise_precis)
    with pytest.raises(InvalidInput):
        normalise_identifier("ve\u200bra@example.test")
