"""Sites on set-up S for the cases, asked from outside: HTTP, a real Valkey, real hashes."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, request

from authguard.flask import AuthGuard, current_attempt
from tests.flask.conftest import HOME, People, Person, Site, bare_app, site, site_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

# Fixtures are found here by their names.
__all__ = ["bare_app", "site", "site_factory"]


class Directory(People):
    """Accounts in a database whose collation folds names: case, blanks and look-alike forms."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.spy.real)
        for key, name in (("key-6", "j\u00fcrgen"), ("key-7", "kris")):
            self.by_key[key] = Person(key, name, site.spy.hash(f"right {name}"))
        self.phones = {"+14155550101": "key-1"}

    def find(self, identifier: str) -> Person | None:
        """Look a username, an e-mail address, a phone number or a key up."""
        wanted = fold(identifier)
        for key, person in self.by_key.items():
            name = fold(person.username)
            if wanted in (name, f"{name}@example.test", key):
                return person
        return self.by_key.get(self.phones.get(wanted, ""))


def fold(text: str) -> str:
    """Give what a forgiving collation compares."""
    return unicodedata.normalize("NFKC", text).casefold().strip()


class Door:
    """One way to guess passwords."""

    def __init__(self, site: Site, path: str, field: str) -> None:
        self.site = site
        self._path = path
        self._field = field

    def knock(self, name: Any, password: Any = "wrong", *, client: str = HOME) -> int:
        """Try once, and give the status of the answer."""
        body = {self._field: name, "password": password}
        return self.site.post(self._path, json=body, client=client).status_code

    @property
    def evaluated(self) -> int:
        """How many passwords were looked at."""
        return len(self.site.spy.checks)


def add_door(
    site: Site, path: str, action: str = "login", *, account: Any = "username", **how: Any
) -> Door:
    """
    Add a protected view of the app's own.

    Args:
        site: Whose view it is.
        path: Its URL.
        action: What it is protected by.
        account: The field with the name, or a function that gives it.
        how: More for ``protect``.
    """

    @site.app.post(path, endpoint=path.replace(".", "-"))
    @site.auth.protect(action, account=account, **how)
    def door() -> tuple[str, int]:
        counted = str(current_attempt.account)
        person = site.people.get(counted) or site.people.find(counted)
        given = request.get_json() if request.is_json else request.form
        if site.spy.verify(person and person.password_hash, given.get("password", "")):
            current_attempt.succeed()
            return "in", 200
        return "wrong", 401

    return Door(site, path, account if isinstance(account, str) else "username")


@pytest.fixture
def build(bare_app: Flask, client: valkey.Valkey) -> Iterator[Callable[..., Site]]:
    """
    Make sites whose accounts a folding database keeps; several in one test share the store.

    Arguments in capitals are settings; the others are the extension's own. Afterwards every key
    that a test left must have an expiry (R11).
    """
    made: list[Site] = []

    def make(*, blueprint: bool = True, **how: Any) -> Site:
        app = Flask(__name__)
        app.config.update(bare_app.config)
        app.config.update({key: how.pop(key) for key in list(how) if key.isupper()})
        new = Site(app, AuthGuard(app, **how))
        new.people = Directory(new)
        made.append(new)
        if blueprint:
            app.register_blueprint(new.auth.blueprint(accounts=new.people), url_prefix="/auth")
        return new

    yield make
    for each in made:
        each.guard.close()
    assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []


@pytest.fixture(params=["known", "unknown", "own view"])
def door_factory(
    request: pytest.FixtureRequest, build: Callable[..., Site], clock: Callable[[], int]
) -> Callable[..., Door]:
    """
    Give each way in turn by which spellings of one name are tried; settings are its arguments.

    The ready-made login where the name is known, the same where nobody has it, and a view of the
    app's own whose extension has no way to look names up.
    """

    def make(**config: Any) -> Door:
        own = request.param == "own view"
        site = build(clock=clock, blueprint=not own, **config)
        if request.param == "unknown":
            site.people.by_key.clear()
        return add_door(site, "/door") if own else Door(site, "/auth/login", "identifier")

    return make


@pytest.fixture
def door(door_factory: Callable[..., Door]) -> Door:
    """Give each way in turn, on set-up S."""
    return door_factory()
