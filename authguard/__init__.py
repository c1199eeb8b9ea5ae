"""
authguard: abuse protection for sign-in.

Login, password reset and one-time codes behind fail-closed sliding logs on Valkey, keyed on both
the account and the client's address.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from authguard.decision import Cleared, Decision, Verdict
from authguard.errors import (
    AuthguardError,
    ConfigurationError,
    Denied,
    Denylisted,
    HashingUnavailable,
    InvalidInput,
    Overloaded,
    StoreUnavailable,
    Unavailable,
)
from authguard.guard import NO_ACCOUNT, Attempt, Guard
from authguard.identity import AccountKey
from authguard.limiter import Limiter
from authguard.limits import (
    Conversion,
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.policy import Policy, PolicyLimit
from authguard.policy_file import default_policies, load_policies

if TYPE_CHECKING:
    from authguard.guard_async import AsyncGuard
    from authguard.load import LoadProbe
    from authguard.passwords import Passwords

__all__ = [
    "NO_ACCOUNT",
    "AccountKey",
    "AsyncGuard",
    "Attempt",
    "AuthguardError",
    "Cleared",
    "ConfigurationError",
    "Conversion",
    "Cooldown",
    "Decision",
    "Denied",
    "Denylisted",
    "Distinct",
    "FixedWindow",
    "Guard",
    "HashingUnavailable",
    "InvalidInput",
    "LeakyBucket",
    "Limiter",
    "LoadProbe",
    "Overloaded",
    "Passwords",
    "Policy",
    "PolicyLimit",
    "SlidingLog",
    "SlidingWindowCounter",
    "StoreUnavailable",
    "TokenBucket",
    "Unavailable",
    "Verdict",
    "default_policies",
    "load_policies",
]

__version__ = "0.1.0"

#: What not everybody needs, and where it is: loaded when it is asked for (PEP 562).
_LATER = {
    "AsyncGuard": "authguard.guard_async",
    "LoadProbe": "authguard.load",
    "Passwords": "authguard.passwords",
}

if not TYPE_CHECKING:  # type checkers know the names, and must not take any other for one

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LATER[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})
