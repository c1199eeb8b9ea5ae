"""
Who is asking: accounts and addresses, normalised, then turned into pseudonyms.

Every limit is only as good as its key, so one function normalises wherever a name is checked,
recorded, unlocked or shown, and nothing raw goes any further: a pseudonym is an HMAC-SHA-256
under the guard's secret.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import unicodedata
from typing import Final

from authguard.errors import ConfigurationError, InvalidInput

__all__ = [
    "Address",
    "Pseudonyms",
    "address_parts",
    "check_secret",
    "normalise_account",
    "read_address",
]

#: Longest account name in characters: the longest e-mail address (RFC 5321: a path of 256 octets
#: with its angle brackets).
LONGEST_ACCOUNT: Final = 254

#: Shortest secret in bytes: the digest size, below which RFC 2104 advises against.
SHORTEST_SECRET: Final = 32

#: What stands in examples and tutorials; a secret that holds it is nobody's secret.
_PLACEHOLDERS: Final = (b"change-me", b"change_me", b"changeme", b"your-secret", b"your_secret")

#: Different bytes a secret must have; 32 random hexadecimal digits have 8 but once in 10,000.
_LETTERS: Final = 8

#: Characters of other categories that show nothing (Unicode's Default_Ignorable_Code_Point), and
#: the blank Braille pattern.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

#: Control, format (invisible and bidirectional), surrogate, line and paragraph separators.
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def normalise_account(name: object) -> str:
    """
    Give the one spelling under which an account name is counted.

    NFKC, casefold, NFKC again (casefolding can undo it), blanks at both ends trimmed.

    Args:
        name: What the request claims, at most 254 characters: before normalising, since NFKC
            takes quadratic time on combining marks, and after, since it can grow 18-fold.

    Raises:
        InvalidInput: For anything that is no text, empty, too long, or holds control, invisible
            or bidirectional characters. Such names share no key with each other.
    """
    if not isinstance(name, str):
        raise InvalidInput("account", "must be text")
    if len(name) > LONGEST_ACCOUNT:
        raise InvalidInput("account", f"must be at most {LONGEST_ACCOUNT} characters")
    if name.isascii():
        text = name.lower().strip()
    else:
        text = unicodedata.normalize("NFKC", name).casefold()
        text = unicodedata.normalize("NFKC", text).strip()
    if not text:
        raise InvalidInput("account", "must not be empty")
    if len(text) > LONGEST_ACCOUNT:
        raise InvalidInput("account", f"must be at most {LONGEST_ACCOUNT} characters")
    if _INVISIBLE.search(text) or any(
        unicodedata.category(character) in _REFUSED_CATEGORIES for character in text
    ):
        raise InvalidInput("account", "must not hold control or invisible characters")
    return text


def read_address(text: str) -> Address:
    """
    Read an IP address without its zone, an IPv4-mapped IPv6 address as the IPv4 one it holds.

    Raises:
        ValueError: If it is none.
    """
    ip = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


def address_parts(address: object) -> tuple[str, str]:
    """
    Give the client and the network that an address counts as.

    A client is an IPv4 address or an IPv6 /64, which one host owns whole; a network is an
    IPv4 /24 or an IPv6 /48. An IPv4-mapped IPv6 address counts as the IPv4 address it holds.

    Raises:
        InvalidInput: If it is no IP address.
    """
    if not isinstance(address, str | Address):
        raise InvalidInput("client", "must be an IPv4 or IPv6 address")
    try:
        ip = read_address(str(address))
    except ValueError:
        raise InvalidInput("client", "must be an IPv4 or IPv6 address") from None
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip), _prefix(ip, 24)
    return _prefix(ip, 64), _prefix(ip, 48)


def _prefix(ip: Address, length: int) -> str:
    host_bits = ip.max_prefixlen - length
    return f"{type(ip)(int(ip) >> host_bits << host_bits)}/{length}"


def check_secret(secret: object, where: str) -> bytes:
    """
    Give the bytes of a secret that can be one; its value is never shown.

    Args:
        secret: Text (as UTF-8) or bytes.
        where: The setting it stands in, for the error.

    Raises:
        ConfigurationError: AG011, if it is missing, shorter than 32 bytes, or a placeholder.
    """
    key = secret.encode(errors="replace") if isinstance(secret, str) else secret
    if not isinstance(key, bytes) or len(key) < SHORTEST_SECRET:
        problem = f"is missing or shorter than {SHORTEST_SECRET} bytes"
    elif len(set(key)) < _LETTERS or any(word in key.lower() for word in _PLACEHOLDERS):
        problem = "is a placeholder, not a secret"
    else:
        return key
    raise ConfigurationError(
        "AG011",
        where,
        problem,
        "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
    )


class Pseudonyms:
    """
    Turns what a limit counts by into 32 bytes that only the secret's owner can make.

    Args:
        secret: At least 32 bytes (text counts as UTF-8), random, the same for all workers.

    Raises:
        ConfigurationError: AG011, if it is missing, too short, or a placeholder.
    """

    def __init__(self, secret: str | bytes) -> None:
        self._key = check_secret(secret, "secret")

    def __repr__(self) -> str:
        return "Pseudonyms(secret=…)"

    def of(self, part: str, value: str) -> bytes:
        """Give the pseudonym of a value; fields are length-prefixed, so that no two pairs meet."""
        kind, text = part.encode(), value.encode()
        message = b"%d:%s%d:%s" % (len(kind), kind, len(text), text)
        return hmac.digest(self._key, message, "sha256")
