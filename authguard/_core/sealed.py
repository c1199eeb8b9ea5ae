"""
Sealing: what stands in the store can be read only with a secret that is not there.

A one-time pad: SHAKE-256 over a secret of 128 random bits or more and a salt that is never used
twice gives bytes that nobody without the secret can tell from random ones.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["SALT_BYTES", "seal", "unseal"]

#: Length of a salt.
SALT_BYTES: Final = 16

_LABEL: Final = b"authguard sealed record v1:"


def seal(secret: bytes, salt: bytes, text: str) -> bytes:
    """
    Hide a text; its length stays visible.

    Args:
        secret: Random, at least 16 bytes; whoever has it may read the text.
        salt: 16 random bytes, fresh for this text.
        text: What to hide.
    """
    return salt + _pad(secret, salt, text.encode())


def unseal(secret: bytes, sealed: bytes) -> str:
    """
    Give the text back.

    Raises:
        ValueError: The secret is another one, or the record is none of ours.
    """
    salt, hidden = sealed[:SALT_BYTES], sealed[SALT_BYTES:]
    return _pad(secret, salt, hidden).decode()


def _pad(secret: bytes, salt: bytes, data: bytes) -> bytes:
    pad = hashlib.shake_256(_LABEL + salt + secret).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, pad, strict=True))
