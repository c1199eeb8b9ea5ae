"""
The guard: reserve, then verify, then give back on success.

Before a credential is looked at, one atomic call on Valkey reserves a place in every log that
could refuse the attempt; only a proven success gives the place back. The steps are those of
``_guard_steps.py``; this face waits for each answer, :mod:`authguard.guard_async` awaits it.
"""

from __future__ import annotations

from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, cast

from authguard._colours import blocking
from authguard._core.steps import drive
from authguard._guard_steps import GuardSteps
from authguard._subjects import NO_ACCOUNT
from authguard.attempt import Attempt
from authguard.limiter import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.steps import Steps
    from authguard._guard_steps import Reserved
    from authguard._notes import Notes
    from authguard.limits import Algorithm
    from authguard.one_time import OneTime
    from authguard.ops.check import CheckReport
    from authguard.stores.base import Store

__all__ = ["NO_ACCOUNT", "Attempt", "Guard"]

P = ParamSpec("P")


def _admitted(
    steps: Callable[Concatenate[Any, P], Steps[Reserved]],
) -> Callable[Concatenate[Any, P], Attempt]:
    """Make a method that reserves; what it gives is the attempt."""

    @wraps(blocking(steps))  # its name and signature
    def run(self: Guard, /, *args: P.args, **settings: P.kwargs) -> Attempt:
        engine = self._engine
        return Attempt(engine, drive(cast("Store", engine.store), steps(self, *args, **settings)))

    return run


class Guard(GuardSteps):
    """
    Guards actions by the limits of their policies, on one store shared by all workers.

    Args:
        store: ``valkey://host:port/db``, another address of ``docs/store.md`` (TLS, a UNIX socket,
            Sentinel, Cluster), or a store of one's own.
        secret: At least 32 random bytes; keys in the store are HMACs under it. Or a list of
            secrets, the newest first: while an old one is still listed every limit is counted
            under both, so that a change of secrets gives nobody a fresh budget.
        policies: A TOML file's path or the same as a mapping, over the default profile.
        clock: Gives milliseconds since the epoch, for tests and replays; without one the
            store's own clock counts, as it must in production.
        deadline_ms: Longest time of one decision, in milliseconds.
        normalise: Gives the one spelling of an account's name; one of
            :mod:`authguard.identity.accounts`, or a function of the app's own. By default NFKC and
            casefold.
        resolve: Turns whatever was typed (username, e-mail, phone) into the account's one key, or
            gives None for what names nobody. Names it does not know count as they are spelt.
        tier: Gives the tier of an account's key, such as its plan, as the policies' ``tiers`` name
            them; None for the limits' own numbers. Asked only where an action's limits have tiers.
        prefixes: How many bits of an address count as one ``client`` and one ``network``, each for
            IPv4 and IPv6: ``{"client": (32, 64), "network": (24, 48)}`` where nothing is said.
        allowlist: Networks whose limits by address don't apply; those by account do.
        denylist: Networks that are refused whatever they ask.
        remember_refusals_ms: For how long a refusal is remembered in this process, in milliseconds:
            its repeats are refused without asking the store. 0 to 1000; 0: not at all.

    Raises:
        ConfigurationError: AG001 to AG012, AG017, AG018, AG025, naming the setting and the mend.
    """

    attempt = _admitted(GuardSteps._attempt)
    message = _admitted(GuardSteps._message)
    message_over = blocking(GuardSteps._message_over)
    peek = blocking(GuardSteps._peek)

    clear = blocking(GuardSteps._clear)
    pardon = blocking(GuardSteps._pardon)
    recover = blocking(GuardSteps._recover)
    usage = blocking(GuardSteps._usage)
    block = blocking(GuardSteps._block)
    unblock = blocking(GuardSteps._unblock)
    override = blocking(GuardSteps._override)
    lift_override = blocking(GuardSteps._lift_override)
    load = blocking(GuardSteps._load)
    current_load = blocking(GuardSteps._current_load)
    load_until_ms = blocking(GuardSteps._load_until_ms)
    now_ms = blocking(GuardSteps._now_ms)

    @cached_property
    def one_time(self) -> OneTime:
        """Issues and takes codes and links."""
        from authguard.one_time import OneTime  # noqa: PLC0415 (only if it is used)

        return OneTime(self._engine)

    @cached_property
    def notes(self) -> Notes:
        """Keeps what operators note beside a block."""
        from authguard._notes import Notes  # noqa: PLC0415 (only if it is used)

        return Notes(self._engine, self._named)

    @property
    def store(self) -> Store:
        """What runs its calls."""
        return cast("Store", self._engine.store)

    @staticmethod
    def _store_of(url: str, deadline_ms: int) -> Store:
        from authguard.stores.valkey import ValkeyStore  # noqa: PLC0415 (only if it is used)

        return ValkeyStore(url, deadline_ms=deadline_ms)

    def limiter(self, limit: Algorithm, *, name: str | None = None) -> Limiter:
        """
        Use one algorithm by itself, keyed by any text.

        Args:
            limit: The algorithm.
            name: Limiters of one name share their logs, whatever their numbers; without a name,
                those of equal algorithms do.

        Raises:
            ConfigurationError: AG005, for what can't count by itself.
        """
        return Limiter(self._engine, self._limited(limit, name))

    def check(self) -> CheckReport:
        """
        Look the store, the secret and the policies over; writes nothing.

        What a Flask app's settings say besides is looked at by ``flask authguard check``.

        Raises:
            StoreUnavailable: If the store gave no clear answer.
        """
        from authguard.ops.check import check  # noqa: PLC0415 (only if it is used)

        return check(self)

    def close(self) -> None:
        """Let the store's connections go."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
