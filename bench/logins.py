"""
One login under three limits, as each library's user would write it, under one face.

The limits are the same for all: 5 in 15 minutes for the account, 100 for the client, 10 for the
two together. Those that have no call for three limits are asked for one after another, account,
client, pair, up to the first that refuses.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import valkey
from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from throttled import Throttled, per_duration
from throttled.store import RedisStore

from authguard import Denied, Guard
from bench.recorded import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "DEFAULT_PROFILE",
    "LIMITS_MOVING",
    "NO_OP",
    "OURS",
    "PING",
    "REMEMBERING",
    "SECRET",
    "SETS",
    "SET_SCRIPT",
    "STARRED",
    "TO_ITS",
    "TO_ITS_IS",
    "WINDOW_S",
    "Ask",
    "Login",
    "Numbers",
    "ScriptOfSets",
    "is_peer",
    "logins",
    "our_guard",
    "plain",
    "policy",
    "starred",
    "stream",
]

SECRET: Final = "a secret of the benchmark, 32 bytes or more"
#: Decisions for each account and for each client of a stream: 5,000 and 1,000 of 20,000.
EACH_ACCOUNT, EACH_CLIENT = 4, 20
WINDOW_S: Final = 900

PING, NO_OP = "PING", "no-op EVALSHA"
OURS: Final = "authguard"
REMEMBERING: Final = "authguard, remembers refusals"
DEFAULT_PROFILE: Final = "authguard, default profile"
LIMITS_MOVING: Final = "limits moving-window"
SETS: Final = "three ZSET scripts"

#: How tables mark who keeps no log, and say how fast ours is beside another.
STARRED: Final = "* keeps no log of its admissions, and may admit more than the limit in a window."
TO_ITS: Final = "authguard / it"
TO_ITS_IS: Final = (
    f"{TO_ITS}: authguard's decisions a second by the row's of the same round;"
    " above 1 authguard is faster."
)

#: Decides on an account and a client: whether all limits admit.
Ask: TypeAlias = "Callable[[str, str], bool]"

#: As blog posts write it: a sorted set of random members, by the server's own clock.
SET_SCRIPT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2] * 1000)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""


@dataclass(frozen=True, slots=True)
class Numbers:
    """
    The numbers of the three limits.

    Attributes:
        account: Places of an account's log.
        client: Places of a client's.
        pair: Places of both together.
        window_s: Length of the window, seconds.
    """

    account: int = 5
    client: int = 100
    pair: int = 10
    window_s: int = WINDOW_S


@dataclass(frozen=True, slots=True)
class Login:
    """
    One contender.

    Attributes:
        name: Whose, and how.
        exact: It keeps a log, so that no window holds more than the limit; None: it limits nothing.
        open: Connects to a database and gives what decides.
    """

    name: str
    exact: bool | None
    open: Callable[[str], Ask]


def is_peer(name: str) -> bool:
    """Tell whether a contender is somebody else's limiter."""
    return not (name in (PING, NO_OP) or name.startswith(OURS))


def starred(name: str, exact: bool | None) -> str:
    """Mark a limiter that keeps no log."""
    return f"{name} *" if exact is False else name


def stream(length: int, seed: int = 7) -> Iterator[tuple[str, str]]:
    """
    Give who asks: an account and a client's address, seeded, so that every run asks the same.

    Each client has a network of its own: networks have a budget in the default profile.
    """
    chosen = random.Random(seed)
    accounts, clients = length // EACH_ACCOUNT, length // EACH_CLIENT
    for _ in range(length):
        account, number = chosen.randrange(accounts), chosen.randrange(clients)
        yield f"user{account}", f"10.{number // 250}.{number % 250}.7"


def policy(numbers: Numbers) -> dict[str, Any]:
    """Give our policy of the three limits."""
    within = f"{numbers.window_s}s"
    return {
        "login": {
            "limits": [
                {
                    "name": "account",
                    "by": ["account"],
                    "sliding_log": f"{numbers.account}/{within}",
                },
                {"name": "client", "by": ["client"], "sliding_log": f"{numbers.client}/{within}"},
                {
                    "name": "pair",
                    "by": ["account", "client"],
                    "sliding_log": f"{numbers.pair}/{within}",
                },
            ]
        }
    }


def our_guard(url: str, numbers: Numbers | None = None, **settings: Any) -> Guard:
    """
    Make a guard that asks the store every time; ``remember_refusals_ms`` lets it remember.

    Args:
        url: Of the store.
        numbers: Those of the three limits; the default profile without them.
        settings: Others of the guard's.
    """
    policies = None if numbers is None else policy(numbers)
    chosen = {"deadline_ms": 10_000, "remember_refusals_ms": 0} | settings
    return Guard(url, secret=SECRET, policies=policies, **chosen)


def _asks(guard: Guard) -> Ask:
    attempt = guard.attempt

    def ask(account: str, client: str) -> bool:
        try:
            attempt("login", account=account, client=client)
        except Denied:
            return False
        return True

    return ask


class ScriptOfSets:
    """One limit of the recipe."""

    def __init__(self, client: valkey.Valkey, limit: int, window_s: int) -> None:
        self._sha = client.script_load(SET_SCRIPT)
        self._evalsha = client.evalsha
        self._limit, self._window_ms = limit, window_s * 1_000

    def ask(self, key: str) -> bool:
        """Count one call."""
        member = uuid.uuid4().hex
        return self._evalsha(self._sha, 1, key, self._limit, self._window_ms, member) == 1


def plain(url: str) -> valkey.Valkey:
    """Connect as a user does who sets nothing: the library's defaults, with libvalkey."""
    port, _, database = url.rpartition(":")[2].partition("/")
    return valkey.Valkey(port=int(port), db=int(database))


def _ping(url: str) -> Ask:
    ping = plain(url).ping
    return lambda _account, _client: ping()


def _no_op(url: str) -> Ask:
    client = plain(url)
    with our_guard(url, Numbers()) as guard:
        ask = _asks(guard)
        ask("warm-up", "203.0.113.9")  # before the first answer less is sent
        ((_, *sent),) = recorded(client, lambda: ask("vera", "203.0.113.9"))
    evalsha, sha = client.evalsha, client.script_load("return 1")
    return lambda _account, _client: evalsha(sha, *sent) == 1


def _moving(numbers: Numbers) -> Callable[[str], Ask]:
    def connect(url: str) -> Ask:
        hit = STRATEGIES["moving-window"](storage_from_string(url)).hit
        by_account, by_client, by_pair = (
            RateLimitItemPerSecond(limit, numbers.window_s)
            for limit in (numbers.account, numbers.client, numbers.pair)
        )
        return lambda account, client: (
            hit(by_account, "account", account)
            and hit(by_client, "client", client)
            and hit(by_pair, "pair", account, client)
        )

    return connect


def _throttled(using: str, numbers: Numbers) -> Callable[[str], Ask]:
    def connect(url: str) -> Ask:
        store = RedisStore(server=url.replace("valkey://", "redis://"))
        window = timedelta(seconds=numbers.window_s)
        by_account, by_client, by_pair = (
            Throttled(using=using, quota=per_duration(window, limit, limit), store=store).limit
            for limit in (numbers.account, numbers.client, numbers.pair)
        )
        return lambda account, client: (
            not (
                by_account(f"account:{account}").limited
                or by_client(f"client:{client}").limited
                or by_pair(f"pair:{account}:{client}").limited
            )
        )

    return connect


def _sets(numbers: Numbers) -> Callable[[str], Ask]:
    def connect(url: str) -> Ask:
        client = plain(url)
        by_account, by_client, by_pair = (
            ScriptOfSets(client, limit, numbers.window_s).ask
            for limit in (numbers.account, numbers.client, numbers.pair)
        )
        return lambda account, address: (
            by_account(f"account:{account}")
            and by_client(f"client:{address}")
            and by_pair(f"pair:{account}:{address}")
        )

    return connect


def logins(numbers: Numbers | None = None, *, floor: bool = True) -> list[Login]:
    """
    Give all contenders.

    Args:
        numbers: The limits; those of the benchmark without it.
        floor: With PING, the script that does nothing, and ours over the default profile.
    """
    numbers = numbers or Numbers()
    bottom = [Login(PING, None, _ping), Login(NO_OP, None, _no_op)] if floor else []
    profile = [Login(DEFAULT_PROFILE, True, lambda url: _asks(our_guard(url)))] if floor else []
    remembering = Login(
        REMEMBERING, True, lambda url: _asks(our_guard(url, numbers, remember_refusals_ms=1_000))
    )
    return [
        *bottom,
        Login(OURS, True, lambda url: _asks(our_guard(url, numbers))),
        remembering,
        *profile,
        Login(LIMITS_MOVING, True, _moving(numbers)),
        Login(SETS, True, _sets(numbers)),
        *(
            Login(f"throttled-py {using}", False, _throttled(using, numbers))
            for using in ("gcra", "sliding_window")
        ),
    ]
