"""
authguard: abuse protection for sign-in.

Login, password reset and one-time codes behind fail-closed sliding logs on Valkey, keyed on both
the account and the client's address.
"""

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
from authguard.guard_async import AsyncGuard
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
from authguard.load import LoadProbe
from authguard.passwords import Passwords
from authguard.policy import Policy, PolicyLimit
from authguard.policy_file import default_policies, load_policies

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
