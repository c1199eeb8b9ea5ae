"""Kind ``store failure``: a full memory, and what a server that evicts makes of locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from valkey.exceptions import OutOfMemoryError

from authguard import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.flask.conftest import Site

#: Limits by account alone keep every name that is tried, so that a flood can fill the memory.
POLICY = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/300s", "lockout": "900s"},
            {"name": "client", "by": ["client"], "fixed_window": "1000000/300s"},
        ]
    }
}
VICTIMS = [f"victim-{number}" for number in range(40)]
ROOM = 100_000
#: More than fill that room.
FLOOD = 2_500


@pytest.fixture
def small_site(build: Callable[..., Site], own_valkey: EmbeddedValkey) -> Site:
    """Give a site on a server of its own."""
    return build(AUTHGUARD_POLICY=POLICY, AUTHGUARD_STORE_URL=own_valkey.url)


def fail(site: Site) -> None:
    """Lock one half of the victims' accounts, and bring the other half to its last try."""
    for number, victim in enumerate(VICTIMS):
        for _ in range(4 + number % 2):
            site.guard.attempt("login", account=victim, client="203.0.113.9")
    assert standing(site) == VICTIMS


def standing(site: Site) -> list[str]:
    """List the victims whose failures still stand: one try is left, or none and a lock."""
    left = {
        victim: site.guard.peek("login", account=victim, client="192.0.2.7").verdicts[0].remaining
        for victim in VICTIMS
    }
    return [victim for number, victim in enumerate(VICTIMS) if left[victim] == 1 - number % 2]


def flood(site: Site, client: valkey.Valkey) -> int:
    """Leave the server little room, and try names that nobody has; tell how many were refused."""
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + ROOM)
    refused = 0
    for number in range(FLOOD):
        try:
            site.guard.attempt("login", account=f"x-{number}", client="198.51.100.7")
        except StoreUnavailable as error:
            assert error.reason == "out of memory"  # noqa: PT017 (each of them)
            refused += 1
            if refused > 100:
                break
    return refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["volatile-lru", "volatile-ttl", "volatile-random", "allkeys-lru", "allkeys-random"]
)
def test_a_server_that_evicts_forgets_its_victims(
    small_site: Site, own_client: valkey.Valkey, policy: str
) -> None:
    """A90: why AG064 refuses such a server: a flood of names throws counts and locks out unseen."""
    own_client.config_set("maxmemory-policy", policy)
    fail(small_site)
    assert flood(small_site, own_client) == 0  # nobody is told
    assert int(own_client.info("stats")["evicted_keys"]) > 0
    still = standing(small_site)
    assert len(still) < len(VICTIMS)
    free = next(victim for victim in VICTIMS if victim not in still)
    assert small_site.statuses(2, free) == [401, 401]  # guesses that it should not have had


def test_a_server_that_evicts_nothing_forgets_nobody(
    small_site: Site, own_client: valkey.Valkey
) -> None:
    """A90, B052: under noeviction the flood is refused with 503, and every lock and count stays."""
    assert own_client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    fail(small_site)
    assert small_site.statuses(3) == [401] * 3
    assert flood(small_site, own_client) > 100
    answer = small_site.login("vera", "right vera")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert small_site.login("victim-1").status_code == 429  # locked: that takes no memory
    assert len(small_site.spy.checks) == 3
    assert int(own_client.info("stats")["evicted_keys"]) == 0
    own_client.config_set("maxmemory", 0)
    assert standing(small_site) == VICTIMS
    assert small_site.used() == 3
    assert small_site.login("vera", "right vera").status_code == 200


def test_two_megabytes_of_junk(small_site: Site, own_client: valkey.Valkey) -> None:
    """B052: with 2 MB full of junk a sign-in is 503 and leaves nothing; then 3 of 5 are used."""
    assert small_site.statuses(3) == [401] * 3
    own_client.config_set("maxmemory", "2mb")
    before = {key: own_client.dump(key) for key in own_client.scan_iter()}
    fill(own_client)
    assert small_site.login("vera", "right vera").status_code == 503
    own_client.delete(*own_client.scan_iter("junk-*"))
    assert {key: own_client.dump(key) for key in own_client.scan_iter()} == before
    assert small_site.used() == 3
    assert small_site.statuses(3) == [401, 401, 429]


def fill(client: valkey.Valkey) -> None:
    """Write junk until the server takes no more, in ever smaller pieces."""
    number = 0
    for size in (100_000, 10_000, 1_000, 100, 1):
        while True:
            try:
                client.set(f"junk-{number}", "x" * size, ex=900)
            except OutOfMemoryError:
                break
            number += 1
