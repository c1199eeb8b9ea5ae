"""
A recorded attack, run through a policy: what would it have refused, and whom?

Every try of a log takes the road of a live sign-in: ``Guard.attempt`` before its result is known,
``succeed`` if the log says that the credential was right, nothing if it was wrong. The Lua and the
Valkey are the real ones; only the clock is the log's own.

A replay makes up a secret for itself and forgets it, so that its keys can meet nobody else's, not
even on a live server, and it takes those keys away when it ends, whichever way it ends.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, TypeVar

from authguard._core import calls
from authguard.errors import ConfigurationError, Denied, InvalidInput, StoreUnavailable
from authguard.guard import NO_ACCOUNT, Guard
from authguard.identity import normalise_account
from authguard.ops.replay_report import ReplayCount, Report
from authguard.stores.valkey import ValkeyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from authguard._core.calls import ScriptCall
    from authguard.decision import Decision
    from authguard.ops.sshd_log import SignIn, SshdLog
    from authguard.policy import Policy

__all__ = ["Report", "replay"]

T = TypeVar("T")

_ACTION: Final = "login"

#: What a limit can count by that a log tells of.
_TOLD_PARTS: Final = frozenset({"account", "client", "network", "global"})

#: Nobody waits for a single decision of a replay, so a busy machine may take its time.
_DEADLINE_MS: Final = 1000

#: Keys taken away by one command: few enough not to hold up a live server.
_KEYS_AT_ONCE: Final = 500


def replay(
    log: SshdLog,
    store_url: str,
    *,
    policies: Mapping[str, Policy] | None = None,
    policy_name: str = "default",
    progress: Callable[[int], object] | None = None,
) -> Report:
    """
    Pass every try of a log through the ``login`` policy, in order of time.

    A name that can't be normalised (empty, or with control characters) is charged to its client
    alone, as a live request with such a name is, and counted as malformed.

    Args:
        log: The tries.
        store_url: A Valkey or Redis server; a live one may be used (see above).
        policies: The policies to try; None for the default profile.
        policy_name: What the report calls them.
        progress: Called after each line's tries with their number.

    Raises:
        ConfigurationError: The store's address is wrong (AG010), or no limit of the policy counts
            by anything that a log tells of (AG023).
        StoreUnavailable: The store gave no clear verdict; half a replay is not reported, whatever
            the policy's outage rule.
    """
    began_s = time.monotonic()
    store = _ReplayStore(store_url)
    count = ReplayCount()
    try:
        guard = Guard(store, secret=secrets.token_bytes(32), policies=policies)
        if not any(_TOLD_PARTS.issuperset(limit.by) for limit in guard.policy(_ACTION).limits):
            raise ConfigurationError(
                "AG023",
                f"[{_ACTION}] limits",
                "none counts by account, client or network alone, and a log tells of nothing else",
                "add one that does",
            )
        for sign_in in log.sign_ins:
            malformed = _is_malformed(sign_in.account)
            for _ in range(sign_in.times):
                refusal = _refusal(guard, sign_in, malformed=malformed)
                count.add(sign_in, refusal, malformed=malformed)
            if progress is not None:
                progress(sign_in.times)
    except _StoreLostError as lost:
        raise lost.cause from None
    finally:
        keys_left = store.end()
    return count.report(
        log,
        policy=policy_name,
        keys_left=keys_left,
        wall_ms=round((time.monotonic() - began_s) * 1000),
    )


def _refusal(guard: Guard, sign_in: SignIn, *, malformed: bool) -> Decision | None:
    """Make one try; give the decision if it was refused, None if it was admitted."""
    account = NO_ACCOUNT if malformed else sign_in.account
    try:
        attempt = guard.attempt(
            _ACTION, account=account, client=sign_in.client, now_ms=sign_in.at_ms
        )
    except Denied as denied:
        return denied.decision
    with attempt:
        if sign_in.succeeded:
            attempt.succeed()
    return None


def _is_malformed(account: str) -> bool:
    """Tell whether the guard would refuse the name as input."""
    try:
        normalise_account(account)
    except InvalidInput:
        return True
    return False


class _StoreLostError(Exception):
    """Carries a store's failure past the guard, which would else admit or settle without it."""

    def __init__(self, cause: StoreUnavailable) -> None:
        self.cause = cause
        super().__init__(cause.reason)


class _ReplayStore:
    """A Valkey store that knows which keys it has touched, and ends the replay when it fails."""

    def __init__(self, url: str) -> None:
        self._store = ValkeyStore(url, deadline_ms=_DEADLINE_MS)
        self._keys: set[str] = set()

    @property
    def spread(self) -> bool:
        """See :class:`authguard.stores.base.Store`."""
        return self._store.spread

    def one_deadline(self) -> AbstractContextManager[object]:
        """See :class:`authguard.stores.base.Store`."""
        return self._store.one_deadline()

    def run(self, call: ScriptCall[T]) -> T:
        """Run a call, see :meth:`authguard.stores.base.Store.run`."""
        self._keys.update(call.keys)
        try:
            return self._store.run(call)
        except StoreUnavailable as error:
            raise _StoreLostError(error) from error

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def end(self) -> int:
        """
        Take all touched keys away and close.

        Not by ``Guard.clear``: that keeps how far a lockout has climbed, as it must for an
        operator.

        Returns:
            How many keys may be left, because the store was away; they end by themselves.
        """
        # On a cluster those of one tag go together; sorted, they stand side by side.
        tags = groupby(sorted(self._keys), _tag if self.spread else lambda _: "")
        left = len(self._keys)
        with suppress(StoreUnavailable):
            for _, keys in tags:
                while some := tuple(islice(keys, _KEYS_AT_ONCE)):
                    self._store.run(calls.drop(some))
                    left -= len(some)
        self.close()
        return left


def _tag(key: str) -> str:
    return key.partition("}")[0]
