"""
Who is asking, and where a message goes: accounts, addresses, destinations, pseudonyms.

Every limit is only as good as its key, so one function gives the one spelling of a name, of an
address or of a destination wherever it is checked, recorded, unlocked or shown. Nothing raw goes
any further: what is counted is an HMAC-SHA-256 under the guard's secret.
"""

from authguard.identity.accounts import (
    LONGEST_ACCOUNT,
    AccountKey,
    Normaliser,
    normalise_account,
    normalise_case_sensitive,
    normalise_precis,
)
from authguard.identity.addresses import Address, AddressSet, Prefixes, read_address
from authguard.identity.destinations import (
    Email,
    Phone,
    StandIn,
    normalise_identifier,
    read_destination,
    read_email,
    read_phone,
    takes_texts,
)
from authguard.identity.pseudonyms import Pseudonyms, check_secrets

__all__ = [
    "LONGEST_ACCOUNT",
    "AccountKey",
    "Address",
    "AddressSet",
    "Email",
    "Normaliser",
    "Phone",
    "Prefixes",
    "Pseudonyms",
    "StandIn",
    "check_secrets",
    "normalise_account",
    "normalise_case_sensitive",
    "normalise_identifier",
    "normalise_precis",
    "read_address",
    "read_destination",
    "read_email",
    "read_phone",
    "takes_texts",
]
