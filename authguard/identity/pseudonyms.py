"""
Pseudonyms: what a limit counts by, as 32 bytes that only the secret's owner can make.

Fields are length-prefixed before they are hashed, so no two pairs of values meet in one
pseudonym, whatever they hold.
"""

from __future__ import annotations

import hmac
from functools import cache
from typing import Final

from authguard.checks import is_unicode
from authguard.errors import ConfigurationError

__all__ = ["Pseudonyms", "check_secrets"]

#: Shortest secret in bytes: the digest size, below which RFC 2104 advises against.
SHORTEST_SECRET: Final = 32

#: What stands in examples and tutorials; a secret that holds it is nobody's secret.
_PLACEHOLDERS: Final = (
    *("change-me", "change_me", "changeme", "changeit", "your-secret", "your_secret"),
    *("your-256-bit", "<your", "${"),  # the last: a template that nobody filled in
)

#: Different bytes a secret must have; 32 random hexadecimal digits have 8 but once in 10,000.
_LETTERS: Final = 8

#: Most secrets at a time; a change of secrets needs two.
_MOST_SECRETS: Final = 8


def check_secrets(secrets: object, where: str) -> tuple[bytes, ...]:
    """
    Give the bytes of a secret that can be one, or of several; no value is ever shown.

    Args:
        secrets: Text (as UTF-8) or bytes; or a list of such, the newest first.
        where: The setting they stand in, for the error.

    Raises:
        ConfigurationError: AG011, if one is missing, shorter than 32 bytes, a placeholder, or
            stands twice, or if there are more than eight.
    """
    if not isinstance(secrets, list | tuple):
        return (_check_secret(secrets, where),)
    if not secrets:
        return (_check_secret(None, where),)
    if len(secrets) > _MOST_SECRETS:
        raise ConfigurationError(
            "AG011",
            where,
            f"holds {len(secrets)} secrets",
            f"list at most {_MOST_SECRETS}: each limit is counted under all of them",
        )
    keys = tuple(_check_secret(each, f"{where}[{at}]") for at, each in enumerate(secrets))
    if len(set(keys)) != len(keys):
        raise ConfigurationError("AG011", where, "holds one secret twice", "list each once")
    return keys


def _check_secret(secret: object, where: str) -> bytes:
    key: object = secret
    if isinstance(secret, str):
        # Raw bytes in an environment variable come as lone surrogates, and are bytes again here.
        text = "".join(c for c in secret if not "\udc80" <= c <= "\udcff")
        key = secret.encode(errors="surrogateescape") if is_unicode(text) else None
    if secret is not None and not isinstance(secret, str | bytes):
        problem = f"is {type(secret).__name__}, neither text nor bytes"
    elif not isinstance(key, bytes) or len(key) < SHORTEST_SECRET:
        problem = f"is missing or shorter than {SHORTEST_SECRET} bytes"
    elif len(set(key)) < _LETTERS:
        problem = f"is a placeholder, not a secret: it has fewer than {_LETTERS} different bytes"
    elif word := _placeholder_in(key):
        problem = f'is a placeholder, not a secret: "{word}" is in it'
    else:
        return key
    raise ConfigurationError(
        "AG011",
        where,
        problem,
        "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
    )


def _placeholder_in(key: bytes) -> str | None:
    """Find what is nobody's secret in text; 32 random bytes, which are none, may hold a "${"."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    return next((word for word in _PLACEHOLDERS if word in text.lower()), None)


@cache
def _prefixed(part: str) -> bytes:
    """Give a part with its length; there are only so many parts."""
    text = part.encode()
    return b"%d:%s" % (len(text), text)


class Pseudonyms:
    """
    Turns what a limit counts by into 32 bytes that only the secret's owner can make.

    Args:
        secret: At least 32 bytes (text counts as UTF-8), random, the same for all workers.

    Raises:
        ConfigurationError: AG011, if it is missing, too short, or a placeholder.
    """

    def __init__(self, secret: str | bytes) -> None:
        self._key = _check_secret(secret, "secret")
        # Keyed once: a copy costs half of what keying it again does.
        self._keyed = hmac.new(self._key, digestmod="sha256")

    def __repr__(self) -> str:
        return "Pseudonyms(secret=…)"

    def of(self, part: str, value: str) -> bytes:
        """Give the pseudonym of a value; fields are length-prefixed, so that no two pairs meet."""
        text = value.encode()
        return self._digest(b"%s%d:%s" % (_prefixed(part), len(text), text))

    def mac(self, *fields: str) -> bytes:
        """Give the same over any number of fields; two of them make no other's pseudonym."""
        texts = [field.encode() for field in ("mac", str(len(fields)), *fields)]
        return self._digest(b"".join(b"%d:%s" % (len(text), text) for text in texts))

    def _digest(self, message: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(message)
        return keyed.digest()
