"""All names of an account share one budget: ``resolve`` turns each into the account's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import AccountKey, ConfigurationError, Denied, InvalidInput
from authguard.identity import normalise_case_sensitive, normalise_identifier, normalise_precis

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

BY_ACCOUNT = {"login": {"limits": [{"name": "a", "by": ["account"], "sliding_log": "5/15m"}]}}
NAMES = {"vera": "key-1", "vera@example.test": "key-1", "+14155550101": "key-1", "omar": "key-2"}


def resolve(text: str) -> str | None:
    """Look an account up, as an app would."""
    return NAMES.get(normalise_identifier(text, region="US"))


@pytest.fixture
def guard(guard_factory: Callable[..., Guard]) -> Guard:
    """Give a guard that knows two accounts."""
    return guard_factory(policies=BY_ACCOUNT, resolve=resolve)


def test_all_names_of_an_account_share_its_budget(guard: Guard) -> None:
    """A24: by username, e-mail and phone, each in any spelling, five tries in all."""
    names = ["vera", "VERA@Example.test", "+1 (415) 555-0101", "415-555-0101", " Vera "]
    for name in names:
        guard.attempt("login", account=name)
    for name in [*names, "vera@example.test", AccountKey("key-1")]:
        with pytest.raises(Denied):
            guard.attempt("login", account=name)
    guard.attempt("login", account="omar")


def test_a_name_that_nobody_has_counts_as_it_is_spelt(guard: Guard) -> None:
    """Rule 10: unknown text has a budget of its own, in one spelling."""
    for name in ["ghost", "GHOST", " ghost", "\uff47host", "Ghost"]:
        guard.attempt("login", account=name)
    with pytest.raises(Denied):
        guard.attempt("login", account="ghost")
    assert guard.peek("login", account="ghost@example.test").remaining == 5


def test_status_and_unlock_take_every_name(guard: Guard) -> None:
    """B140: what was counted under one name is shown and cleared under any other."""
    guard.attempt("login", account="vera@example.test")
    assert guard.peek("login", account="+1 415 555 0101").remaining == 4
    assert guard.clear("login", account="VERA").entries == 1


def test_a_key_is_not_looked_up_again(guard_factory: Callable[..., Guard]) -> None:
    """Nobody who takes another's key for a name can put that account's guesses on their own."""
    asked: list[str] = []

    def stolen(text: str) -> str | None:
        asked.append(text)
        return "key-of-the-thief"

    guard = guard_factory(policies=BY_ACCOUNT, resolve=stolen)
    guard.attempt("login", account=AccountKey("key-1"))
    assert asked == []
    assert guard.account_key("anything") == "key-of-the-thief"
    assert isinstance(guard.account_key("anything"), AccountKey)


def test_a_key_is_taken_as_it_is(guard_factory: Callable[..., Guard]) -> None:
    """B042: a key need not look like a name; looked up or given, it is the same budget."""
    guard = guard_factory(
        policies=BY_ACCOUNT, normalise=lambda text: str(int(text)), resolve=lambda _text: "Key-1"
    )
    assert guard.account_key("0047") == AccountKey("Key-1") == "Key-1"
    for account in ("47", AccountKey("Key-1"), guard.account_key("0048")):
        guard.attempt("login", account=account)
    assert guard.peek("login", account=AccountKey("Key-1")).remaining == 2


def test_keys_that_differ_by_case_are_two_accounts(guard_factory: Callable[..., Guard]) -> None:
    """Short ids in base 62 or 64: one's success forgives no guess at the other."""
    ids = {"victim": "gB4", "eve": "Gb4"}
    guard = guard_factory(policies=BY_ACCOUNT, resolve=ids.get)
    for _ in range(4):
        guard.attempt("login", account="victim", client="203.0.113.9")
        guard.attempt("login", account="eve", client="203.0.113.9").succeed()
    assert guard.peek("login", account="victim").remaining == 1
    assert guard.attempt("login", account="victim").account == "gB4"


def test_a_step_up_shares_the_budget_of_a_case_sensitive_name(
    guard_factory: Callable[..., Guard],
) -> None:
    """A43: what was counted is the session's key, and counts as the name it came from."""
    guard = guard_factory(policies=BY_ACCOUNT, normalise=normalise_case_sensitive)
    for _ in range(3):
        key = guard.attempt("login", account="Vera").account
    assert guard.peek("login", account=AccountKey(key)).remaining == 2


def test_a_name_that_was_spelt_is_not_spelt_again(guard_factory: Callable[..., Guard]) -> None:
    """What account_key gives for a name that nobody has counts as that very name does."""
    guard = guard_factory(policies=BY_ACCOUNT, normalise=normalise_case_sensitive)
    guard.attempt("login", account=guard.account_key("Ghost"))
    assert guard.peek("login", account="Ghost").remaining == 4
    assert guard.peek("login", account="ghost").remaining == 5


@pytest.mark.parametrize("way", ["resolve", "normalise"])
def test_what_is_no_function_stops_the_start(guard_factory: Callable[..., Guard], way: str) -> None:
    """AG028: a name instead of the function is told at the start, not at each sign-in."""
    with pytest.raises(ConfigurationError, match=f"AG028 {way}: 'find_user' is no function"):
        guard_factory(**{way: "find_user"})


@pytest.mark.parametrize("key", [None, 5, b"key", "", "  ", "k" * 255, "key\x00"])
def test_nobodys_key_is_no_key(key: Any) -> None:
    """B045: a session without an account makes no key that all such sessions would share."""
    with pytest.raises(InvalidInput):
        AccountKey(key)


def test_what_cannot_be_a_name_is_not_looked_up(guard_factory: Callable[..., Guard]) -> None:
    """A18, A25: empty, invisible and over-long names never reach the app's own look-up."""
    asked: list[str] = []
    guard = guard_factory(policies=BY_ACCOUNT, resolve=asked.append)
    for name in ("", "  ", "ve\u200bra", "v" * 255, "\ud800", 5, None, ["vera"]):
        with pytest.raises(InvalidInput):
            guard.attempt("login", account=name)
    assert asked == []


@pytest.mark.parametrize("key", [5, b"key-1", "", "  ", ["key-1"], "k" * 255, "key\x00"])
def test_a_key_that_is_none_is_the_apps_fault(
    guard_factory: Callable[..., Guard], key: Any
) -> None:
    """AG026: a resolve that gives no usable key stops at once, and is not the client's fault."""
    guard = guard_factory(policies=BY_ACCOUNT, resolve=lambda _text: key)
    with pytest.raises(ConfigurationError, match=r"^AG026 the key of an account: (must |is \w+, )"):
        guard.attempt("login", account="vera")


@pytest.mark.parametrize(
    ("normalise", "same", "apart"),
    [
        (None, ["Vera", "vera", "\u24e5era", "\uff56era"], ["vera2"]),
        (normalise_case_sensitive, ["Vera", " Vera", "\uff36era"], ["vera", "VERA"]),
        (normalise_precis, ["Vera", "vera", "\uff36ERA"], ["vera2"]),
        (lambda text: text.rpartition("\\")[2].lower(), ["CORP\\vera", "VERA"], ["omar"]),
    ],
)
def test_the_normaliser_is_the_apps_choice(
    guard_factory: Callable[..., Guard], normalise: Any, same: list[str], apart: list[str]
) -> None:
    """B042: one normaliser for check, status and clear; which one, the app says."""
    guard = guard_factory(policies=BY_ACCOUNT, normalise=normalise)
    for name in same:
        guard.attempt("login", account=name)
    left = 5 - len(same)
    assert [guard.peek("login", account=name).remaining for name in same] == [left] * len(same)
    assert [guard.peek("login", account=name).remaining for name in apart] == [5] * len(apart)
    assert guard.clear("login", account=same[0]).entries == len(same)
    assert guard.normalise(same[0]) == guard.normalise(same[-1])
