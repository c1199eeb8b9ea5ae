"""Questions to the settings: the secret, the deadline, the proxies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from authguard.ops.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Setup", "of_secrets", "of_setup", "weakness"]

#: Longest and shortest deadlines that are no surprise, in milliseconds.
SHORTEST_MS: Final = 10
LONGEST_MS: Final = 1_000

#: Different bytes below which a secret of 32 or more was hardly drawn: of 32 random hexadecimal
#: digits one secret in 10,000 has so few.
_LETTERS: Final = 10

#: What people write in a secret's place; looked for without case and all that is no letter or
#: digit. All are of six letters or more: of random secrets one in 100,000 holds one.
_WORDS: Final = (
    *("changeme", "changeit", "changethis", "replaceme", "replacethis", "insertyour", "putyour"),
    *("secret", "password", "passwort", "passphrase", "placeholder", "example", "default"),
    *("development", "testing", "benchmark", "letmein", "authguard", "loremipsum", "deadbeef"),
    *("qwerty", "asdfgh", "zxcvbn", "123456", "654321", "abcdef", "correcthorse", "foobar"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """
    What an app knows of itself, and its guard does not.

    Attributes:
        deadline_ms: Longest time of one decision, in milliseconds; None: nobody's setting.
        proxies: How many networks are declared as the app's own proxies; None: nobody has said.
    """

    deadline_ms: int | None = None
    proxies: int | None = None


def of_secrets(secrets: Sequence[bytes]) -> Iterator[Finding]:
    """Tell whether secrets look drawn; shows nothing of them."""
    found = False
    for at, key in enumerate(secrets):
        if (problem := weakness(key)) is not None:
            found = True
            which = "the secret" if len(secrets) == 1 else f"secret {at + 1} of {len(secrets)}"
            yield Finding(
                "AG073",
                "warning",
                f"{which} {problem}: who guesses it can name everybody's keys and make their"
                " device cookies",
                "python -c 'import secrets; print(secrets.token_urlsafe(32))', and put it before"
                " the old one (docs/identity.md)",
            )
    if not found:
        yield Finding("AG073", "ok", "the secret looks drawn at random")


def weakness(key: bytes) -> str | None:
    """Say what makes a secret a weak one, without a word of it; None if nothing is seen."""
    plain = re.sub(rb"[^0-9a-z]", b"", key.lower()).decode()
    if any(word in plain for word in _WORDS):
        return "holds a word that stands in examples"
    if any(key == (key[:length] * len(key))[: len(key)] for length in range(1, len(key) // 2 + 1)):
        return "is a short text, repeated"
    if len(set(key)) < _LETTERS:
        return "has few different characters"
    steps = [abs(after - before) for before, after in pairwise(key)]
    if 2 * sum(step <= 1 for step in steps) > len(steps):
        return "is a row of neighbours, as in 12345"
    return None


def of_setup(setup: Setup) -> Iterator[Finding]:
    """Tell what an app's own settings bring about."""
    if setup.proxies is None:
        yield Finding(
            "AG074",
            "warning",
            "AUTHGUARD_TRUSTED_PROXIES is not set: if the app is behind a proxy, all clients share"
            " the proxy's budget",
            "list your proxies; or set [] to say that clients connect to the app itself",
        )
    else:
        seen = "no proxy is trusted: the app's peers are its clients"
        if setup.proxies:
            seen = "proxies are declared, and their header alone is believed"
        yield Finding("AG074", "ok", seen)
    if setup.deadline_ms is None:
        return
    if setup.deadline_ms > LONGEST_MS:
        yield Finding(
            "AG075",
            "warning",
            f"AUTHGUARD_DEADLINE_MS is {setup.deadline_ms:,}: while the store hangs, each attempt"
            " holds a worker so long",
            f"take {LONGEST_MS:,} or less; 100 is the default",
        )
    elif setup.deadline_ms < SHORTEST_MS:
        yield Finding(
            "AG075",
            "warning",
            f"AUTHGUARD_DEADLINE_MS is {setup.deadline_ms}: a moment's delay refuses attempts, and"
            " connecting has half of it",
            f"take {SHORTEST_MS} or more; 100 is the default",
        )
    else:
        yield Finding("AG075", "ok", f"an attempt waits {setup.deadline_ms} ms at most")
