"""
The names of accounts: one spelling each, whatever the sender makes of it.

The same normaliser serves the check, the record, the unlock and the status. Which one is the
app's choice; what none of them lets through is an empty name, an over-long one, and characters
that nobody can see.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, Self

from authguard.errors import ConfigurationError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "LONGEST_ACCOUNT",
    "AccountKey",
    "Normaliser",
    "casefolded",
    "normalise_account",
    "normalise_case_sensitive",
    "normalise_precis",
]

#: Longest account name in characters: the longest e-mail address (RFC 5321: a path of 256 octets
#: with its angle brackets).
LONGEST_ACCOUNT: Final = 254

#: Characters of other categories that show nothing (Unicode's Default_Ignorable_Code_Point), and
#: the blank Braille pattern.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

#: Control, format (invisible and bidirectional), surrogate, line and paragraph separators.
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Normaliser:
    """
    Gives the one spelling under which a name is counted.

    Args:
        spell: Maps a name that has been trimmed of blanks to its one spelling; called with what
            the normaliser gives, it must change nothing. May raise ``ValueError`` for what can't
            be a name.
    """

    def __init__(self, spell: Callable[[str], str]) -> None:
        self._spell = spell

    def __call__(self, name: object) -> str:
        """
        Give the one spelling.

        Args:
            name: What the request claims, at most 254 characters: before normalising, since NFKC
                takes quadratic time on combining marks, and after, since it can grow 18-fold.

        Raises:
            InvalidInput: For anything that is no text, empty, too long, or holds control,
                invisible or bidirectional characters. Such names share no key with each other.
        """
        if not isinstance(name, str):
            raise InvalidInput("account", "must be text")
        if len(name) > LONGEST_ACCOUNT:
            raise InvalidInput("account", f"must be at most {LONGEST_ACCOUNT} characters")
        trimmed = name.strip()
        if not trimmed:
            raise InvalidInput("account", "must not be empty")
        # Asked first, so that no normaliser can drop such a character and join two names.
        _refuse_unseen(trimmed)
        text = self._spelt(trimmed)
        if text is None:  # raised here, since the error that said so may hold the name
            raise InvalidInput("account", "holds characters that no name here can have")
        text = text.strip()
        if not text:
            raise InvalidInput("account", "must not be empty")
        if len(text) > LONGEST_ACCOUNT:
            raise InvalidInput("account", f"must be at most {LONGEST_ACCOUNT} characters")
        _refuse_unseen(text)
        return text

    def _spelt(self, trimmed: str) -> str | None:
        try:
            text = self._spell(trimmed)
        except (InvalidInput, ConfigurationError):
            raise
        except ValueError:
            return None
        if not isinstance(text, str):
            raise TypeError(f"the normaliser gave {type(text).__name__} instead of text")
        return text


def _refuse_unseen(text: str) -> None:
    if text.isascii() and text.isprintable():
        return
    if _INVISIBLE.search(text) or any(
        unicodedata.category(character) in _REFUSED_CATEGORIES for character in text
    ):
        raise InvalidInput("account", "must not hold control or invisible characters")


def casefolded(text: str) -> str:
    """Give NFKC, casefold, NFKC again: casefolding can undo the first."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _nfkc(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _precis(text: str) -> str:
    from precis_i18n import get_profile  # noqa: PLC0415 - only for those who choose it

    return str(get_profile("UsernameCaseMapped").enforce(text))


#: The default: NFKC, casefold, NFKC again; blanks at both ends trimmed.
normalise_account: Final = Normaliser(casefolded)

#: For apps where ``Vera`` and ``vera`` are two accounts: NFKC, blanks trimmed, case kept. Never
#: where a look-up ignores case: each spelling would get tries of its own.
normalise_case_sensitive: Final = Normaliser(_nfkc)

#: RFC 8265, UsernameCaseMapped: full and half width mapped, lower case, NFC, the Bidi rule.
#: Refuses blanks inside, symbols, and compatibility forms such as circled letters.
normalise_precis: Final = Normaliser(_precis)


#: The app's own keys: checked as names are, and otherwise left alone.
_as_it_is: Final = Normaliser(lambda text: text)


class AccountKey(str):
    """
    The one key of an account, already looked up: a guard does not ask ``resolve`` for it again.

    For an app that has found the account itself, such as by its session. Taken as it is, whatever
    normaliser names have: two keys that differ only by letter case are two accounts.

    Args:
        key: The app's own key of the account.

    Raises:
        InvalidInput: If it is no text, or none that can be a name. ``None`` is nobody's key.
    """

    __slots__ = ()

    def __new__(cls, key: object) -> Self:
        """Make one; see the class."""
        return super().__new__(cls, _as_it_is(key))

    @classmethod
    def of_normalised(cls, name: str) -> Self:
        """Make one of what a normaliser gave: it has been checked."""
        return super().__new__(cls, name)

    @classmethod
    def of_app(cls, key: object) -> Self:
        """
        Give the key that an app says an account has.

        Raises:
            ConfigurationError: AG026, if it is none: the app's fault, and no client's.
        """
        if not isinstance(key, str):
            raise ConfigurationError(
                "AG026",
                "the key of an account",
                f"is {type(key).__name__}, not text",
                "give str(…)",
            )
        try:
            return cls(key)
        except InvalidInput as error:
            raise ConfigurationError(
                "AG026", "the key of an account", error.problem, "give short text, such as a UUID"
            ) from None
