"""A server that is there but won't do the work: refused, and nothing of the attempt is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import Denied

from .conftest import VERA, keys_of

if TYPE_CHECKING:
    import valkey

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards, Outage

#: Far beyond any answer here, so that what comes is the server's own word.
DEADLINE_MS = 3_000


def dump(client: valkey.Valkey) -> dict[bytes, bytes]:
    """Read all that is stored."""
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.parametrize("planted", ["a list", "a wrong length"])
def test_a_foreign_value_on_any_key_charges_nothing(
    client: valkey.Valkey, guard_factory: Guards, outage: Outage, planted: str
) -> None:
    """What isn't a log refuses, wherever among the keys it lies, and all other keys stay as is."""
    guard = guard_factory(deadline_ms=DEADLINE_MS)
    guard.attempt("login", **VERA)
    keys = keys_of(guard, **VERA)
    assert len(keys) == 11
    for key in keys:
        kept = client.dump(key)
        client.delete(key)
        if planted == "a list":
            client.rpush(key, "x")
        else:
            client.set(key, "thirteen byte")
        before = dump(client)
        outage(guard, f"{planted} in place of a log or lock", "error reply")
        assert dump(client) == before
        client.delete(key)
        if kept is not None:
            client.restore(key, 900_000, kept)
    assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 3


def test_a_full_memory_stores_no_half_attempt(
    own_valkey: EmbeddedValkey,
    own_client: valkey.Valkey,
    guard_factory: Guards,
    outage: Outage,
) -> None:
    """B052: with noeviction and no memory the attempt is refused whole; counting goes on after."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    for _ in range(3):
        guard.attempt("login", **VERA)
    before = dump(own_client)
    own_client.config_set("maxmemory", 1)
    assert own_client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    outage(guard, "OOM under noeviction, keys exist", "out of memory")
    outage(guard, "OOM under noeviction, keys are new", "out of memory", account="omar")
    own_client.config_set("maxmemory", 0)
    assert dump(own_client) == before
    assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 1


def test_a_full_memory_settles_whole_or_not_at_all(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards
) -> None:
    """B052: a success without memory gives its place back in every log, or in none."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    attempts = [guard.attempt("login", **VERA) for _ in range(2)]
    own_client.config_set("maxmemory", 1)
    for attempt in attempts:  # the first must write a shorter log, the second may delete it
        before = dump(own_client)
        attempt.succeed()
        assert attempt.settled is (dump(own_client) != before)
        day = guard.peek("login", account="vera").verdicts[1]
        assert day.remaining == 18 + sum(attempt.settled for attempt in attempts)
    own_client.config_set("maxmemory", 0)
    assert [attempt.settled for attempt in attempts] == [False, True]


def test_a_full_memory_sets_no_lock_without_its_entry(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards, outage: Outage
) -> None:
    """B052: the attempt that would fill the log leaves neither a lock nor an entry behind."""
    policy = {
        "login": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": "2/15m", "lockout": "15m"},
                {"name": "client", "by": ["client"], "sliding_log": "30/15m"},
            ]
        }
    }
    guard = guard_factory(store=own_valkey.url, policies=policy, deadline_ms=DEADLINE_MS)
    guard.attempt("login", **VERA)
    before = dump(own_client)
    own_client.config_set("maxmemory", 1)
    outage(guard, "OOM under noeviction, the log would fill", "out of memory")
    own_client.config_set("maxmemory", 0)
    assert dump(own_client) == before
    assert guard.attempt("login", **VERA).decision.verdicts[0].lock_set
    own_client.config_set("maxmemory", 1)
    with pytest.raises(Denied):
        guard.attempt("login", **VERA)
    own_client.config_set("maxmemory", 0)


@pytest.mark.parametrize("command", ["evalsha", "get", "set", "time"])
def test_a_user_without_a_command_is_refused(
    own_valkey: EmbeddedValkey,
    own_client: valkey.Valkey,
    guard_factory: Guards,
    outage: Outage,
    command: str,
) -> None:
    """B131: an ACL that forbids a command, the clock's too, refuses; no other clock steps in."""
    own_client.acl_setuser(
        "worker", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"]
    )
    address = f"valkey://worker:pw@127.0.0.1:{own_valkey.port}/0"
    guard = guard_factory(store=address, deadline_ms=DEADLINE_MS)
    guard.attempt("login", **VERA)
    before = dump(own_client)
    own_client.execute_command("ACL", "SETUSER", "worker", f"-{command}")
    outage(guard, f"NOPERM {command}", "no permission")
    assert dump(own_client) == before
    own_client.execute_command("ACL", "SETUSER", "worker", f"+{command}")
    assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 3


def test_a_user_without_the_keys_is_refused(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards, outage: Outage
) -> None:
    """An ACL that lets the guard at other keys only refuses."""
    own_client.acl_setuser(
        "worker", enabled=True, passwords=["+pw"], keys=["other:*"], categories=["+@all"]
    )
    address = f"valkey://worker:pw@127.0.0.1:{own_valkey.port}/0"
    outage(guard_factory(store=address, deadline_ms=DEADLINE_MS), "NOPERM keys", "no permission")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("worker:wrong@127.0.0.1:{}/0", "authentication"),
        ("nobody:pw@127.0.0.1:{}/0", "authentication"),
        ("127.0.0.1:{}/99", "no such database"),
    ],
    ids=["a wrong password", "an unknown user", "a database that isn't there"],
)
def test_a_connection_that_is_not_let_in_refuses(
    own_valkey: EmbeddedValkey, guard_factory: Guards, outage: Outage, address: str, reason: str
) -> None:
    """B059: a failed login to the store is an outage like any other."""
    store = f"valkey://{address.format(own_valkey.port)}"
    guard = guard_factory(store=store, deadline_ms=DEADLINE_MS)
    outage(guard, f"not let in: {address.format('port')}", reason)


def test_no_password_where_one_is_needed_refuses(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards, outage: Outage
) -> None:
    """B059: a store that demands a password that the address doesn't give is an outage."""
    own_client.config_set("requirepass", "hunter2")
    guard = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    outage(guard, "no password, one is needed", "authentication", "error reply")


def test_too_many_clients_refuses(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards, outage: Outage
) -> None:
    """B059: a server that takes no more clients is an outage, and over when it does again."""
    own_client.config_set("maxclients", 1)
    guard = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    outage(guard, "maxclients reached", "connection")
    own_client.config_set("maxclients", 100)
    assert guard.attempt("login", **VERA).decision.allowed
