"""
Where a message goes: e-mail addresses and phone numbers, one spelling each.

``email-validator`` and ``phonenumbers`` read them. Nothing is looked up: whether mail arrives or a
number is in use is for whoever sends. What is counted is the mailbox, since a person floods one
inbox through many addresses.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from authguard.checks import shown
from authguard.errors import ConfigurationError, InvalidInput
from authguard.identity.accounts import LONGEST_ACCOUNT, casefolded, normalise_account

if TYPE_CHECKING:
    from email_validator import ValidatedEmail

    from authguard.identity.accounts import Normaliser

__all__ = [
    "Email",
    "Phone",
    "StandIn",
    "normalise_identifier",
    "read_destination",
    "read_email",
    "read_phone",
    "takes_texts",
]

#: Providers that deliver ``name+tag`` to ``name``, each by its own help pages.
_PLUS_TAGS: Final = frozenset(
    {"gmail.com", "googlemail.com"}
    | {"outlook.com", "hotmail.com", "live.com", "msn.com"}
    | {"icloud.com", "me.com", "mac.com"}
    | {"fastmail.com", "fastmail.fm"}
    | {"proton.me", "protonmail.com", "pm.me"}
)

#: Providers that ignore dots in the name.
_DOTS: Final = frozenset({"gmail.com", "googlemail.com"})

#: Domains of one and the same mailbox.
_SAME: Final = {"googlemail.com": "gmail.com", "pm.me": "proton.me", "protonmail.com": "proton.me"}

#: Digits a subscriber's block of numbers spans: ten thousand numbers make one range.
_RANGE_DIGITS: Final = 4

#: What is typed as a phone number: digits, and what people write between them.
_LIKE_A_PHONE: Final = re.compile(
    r"\(?\+?[\d(][\d ()./-]{4,}(?:[ ,;]*+(?:ext(?:ension)?|x|#)[ .:=]*+\d{1,7})?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Email:
    """
    An e-mail address.

    Attributes:
        address: Its one spelling: the name as it was typed, the domain in ASCII (IDNA).
        mailbox: What is counted: lower case, and folded if that was asked for.
    """

    address: str
    mailbox: str


@dataclass(frozen=True, slots=True)
class Phone:
    """
    A phone number.

    Attributes:
        number: E.164, such as ``+14155550101``; an extension is dropped.
        number_range: The same without its last four digits: numbers in sequence share it.
        country: ISO 3166-1 code, such as ``US``; None for numbers of no one country, and for
            those that no country has given out.
    """

    number: str
    number_range: str
    country: str | None


@dataclass(frozen=True, slots=True)
class StandIn:
    """
    What counts as the destination of somebody whose address must not be looked at.

    A route that must not tell who has an account counts a stand-in for each name, known or not, and
    the true destination later, out of sight.

    Attributes:
        name: The account's key or name, and the channel.
    """

    name: str


def read_email(text: object, *, fold: bool = True) -> Email:
    """
    Read one e-mail address.

    Args:
        text: As it was typed; blanks around it are dropped.
        fold: Count addresses that one provider delivers to one mailbox as one: plus-tags at
            Gmail, Outlook, iCloud, Fastmail and Proton, dots at Gmail. ``v+1@`` and ``v+2@`` of any
            other domain may be two people.

    Raises:
        InvalidInput: If it is none, or several.
    """
    valid = _validated(_text(text, "email"))
    if valid is None:  # raised here, since the error that said so holds parts of the address
        raise InvalidInput("email", "is no e-mail address")
    domain = valid.ascii_domain.lower()
    name = casefolded(valid.local_part)
    if fold and domain in _PLUS_TAGS:
        name = name.partition("+")[0] or name
    if fold and domain in _DOTS:
        name = name.replace(".", "")
    if fold:
        domain = _SAME.get(domain, domain)
    return Email(f"{valid.local_part}@{valid.ascii_domain.lower()}", f"{name}@{domain}")


def _validated(text: str) -> ValidatedEmail | None:
    from email_validator import EmailNotValidError, validate_email  # noqa: PLC0415 - takes 20 ms

    try:
        # test_environment: example.test is as good as any, where nothing is sent.
        return validate_email(text, check_deliverability=False, test_environment=True)
    except EmailNotValidError:
        return None


def read_phone(text: object, *, region: str | None = None) -> Phone:
    """
    Read one phone number.

    Args:
        text: As it was typed.
        region: The ISO 3166-1 code of the country whose way of dialling is meant where the
            number has no ``+``; without one such numbers are refused.

    Raises:
        InvalidInput: If it is none: too long or too short for its country, or no number at all.
        ConfigurationError: AG037, if there is no such region.
    """
    import phonenumbers  # noqa: PLC0415 - only for those who have phone numbers

    if region is not None and region not in phonenumbers.SUPPORTED_REGIONS:
        raise ConfigurationError(
            "AG037",
            "region",
            f"{shown(region)} is no ISO 3166-1 code",
            "write capitals, such as 'NO'",
        )
    typed = _text(text, "phone")
    try:
        if not _LIKE_A_PHONE.fullmatch(unicodedata.normalize("NFKC", typed)):
            raise InvalidInput("phone", "is no phone number")
        number = phonenumbers.parse(typed, region)
    except phonenumbers.NumberParseException:
        raise InvalidInput("phone", "is no phone number with its country's code") from None
    # A local number without its area code is "possible", too, and is nobody's E.164.
    reason = phonenumbers.is_possible_number_with_reason(number)
    if reason != phonenumbers.ValidationResult.IS_POSSIBLE:
        raise InvalidInput("phone", "is no phone number of its country")
    e164 = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    # A zero too many would be dropped at the next reading, and make a second spelling meanwhile.
    again = phonenumbers.parse(e164, None)
    if phonenumbers.format_number(again, phonenumbers.PhoneNumberFormat.E164) != e164:
        raise InvalidInput("phone", "is no phone number of its country")
    country = phonenumbers.region_code_for_number(number)
    return Phone(e164, e164[:-_RANGE_DIGITS], None if country in (None, "001") else country)


def takes_texts(phone: Phone) -> bool:
    """
    Tell whether a text message to this number costs what messages to its country cost.

    Not so for premium-rate, shared-cost and toll-free numbers, pagers, voice mail, satellites, and
    numbers that no country has given out.
    """
    import phonenumbers  # noqa: PLC0415 - only for those who have phone numbers

    ordinary = (
        phonenumbers.PhoneNumberType.MOBILE,
        phonenumbers.PhoneNumberType.FIXED_LINE_OR_MOBILE,
        phonenumbers.PhoneNumberType.FIXED_LINE,
        phonenumbers.PhoneNumberType.VOIP,
    )
    kind = phonenumbers.number_type(phonenumbers.parse(phone.number))
    return phone.country is not None and kind in ordinary


def read_destination(text: object) -> Email | Phone:
    """
    Read an e-mail address, or a phone number that begins with ``+``.

    Raises:
        InvalidInput: If it is neither.
    """
    typed = _text(text, "destination")
    try:
        return read_email(typed) if "@" in typed else read_phone(typed)
    except InvalidInput as error:
        raise InvalidInput("destination", error.problem) from None


def normalise_identifier(
    text: object, *, region: str | None = None, normalise: Normaliser = normalise_account
) -> str:
    """
    Give the one spelling of a username, an e-mail address or a phone number.

    For sign-up and look-up alike, so that every way to write a name finds the one account.

    Args:
        text: What was typed.
        region: As in :func:`read_phone`; without one only numbers with a ``+`` are read as such.
        normalise: Spells what is no number, and an address's name.

    Raises:
        InvalidInput: As the normaliser. What is neither an address nor a number is a username.
        ConfigurationError: AG037, if there is no such region.
    """
    name = normalise(text)
    try:
        if "@" in name:
            local, _, domain = _read_name(cast("str", text), name).address.rpartition("@")
            return f"{normalise(local)}@{domain}"
        if _LIKE_A_PHONE.fullmatch(name):
            return read_phone(name, region=region).number
    except InvalidInput:
        return name
    return name


def _read_name(typed: str, name: str) -> Email:
    """
    Read the address that a name is.

    First not of the casefolded name, where "straße.example" is "strasse.example", which is another
    domain. But what makes an address only once it is casefolded is one all the same.
    """
    try:
        return read_email(unicodedata.normalize("NFKC", typed))
    except InvalidInput:
        return read_email(name)


def _text(text: object, field: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(field, "must be text")
    if len(text) > LONGEST_ACCOUNT:
        raise InvalidInput(field, f"must be at most {LONGEST_ACCOUNT} characters")
    return text.strip()
