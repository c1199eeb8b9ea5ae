"""What a typed password is as bytes. Apart from ``passwords.py``: it needs no argon2."""

from __future__ import annotations

import unicodedata
from typing import Final

from authguard.checks import is_unicode
from authguard.errors import InvalidInput

__all__ = ["MAX_PASSWORD_BYTES", "password_bytes"]

#: Longest password taken, in bytes of UTF-8 after NFC. NIST SP 800-63B-4, 3.1.1.2 asks for at
#: least 64 characters and that all of them are checked; the cap bounds the work of normalising.
MAX_PASSWORD_BYTES: Final = 1024


def password_bytes(password: object) -> bytes:
    """
    Return the bytes to hash: UTF-8 of the NFC form (NIST SP 800-63B-4, 3.1.1.2).

    Read a password with it before an attempt is reserved, so that one that can't be used costs
    no account a try.

    Raises:
        InvalidInput: No text, over 1,024 bytes, or not valid Unicode.
    """
    if not isinstance(password, str):
        raise InvalidInput("password", "must be text")
    # Before normalising, whose work grows with the square of a run of combining marks.
    if len(password) > MAX_PASSWORD_BYTES:
        raise InvalidInput("password", f"is longer than {MAX_PASSWORD_BYTES} bytes")
    if not is_unicode(password):
        raise InvalidInput("password", "is not valid Unicode text")
    secret = unicodedata.normalize("NFC", password).encode()
    if len(secret) > MAX_PASSWORD_BYTES:
        raise InvalidInput("password", f"is longer than {MAX_PASSWORD_BYTES} bytes")
    return secret
