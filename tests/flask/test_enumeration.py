"""The same answer for everyone: nothing tells whether an account exists, is locked or disabled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.flask.conftest import Site

NAMES = ["vera", "ghost", "dora", "tess", "nora"]


def face(answer: TestResponse, name: str) -> tuple[int, str, list[tuple[str, str]]]:
    """Give all that a client sees of an answer, but for the name it typed itself."""
    headers = [(key, value) for key, value in answer.headers if key != "Content-Length"]
    return answer.status_code, answer.text.replace(name, "NAME"), headers


@pytest.mark.parametrize("kind", ["json", "data"])
def test_every_try_looks_the_same(site: Site, kind: str) -> None:
    """A52: six tries on a known, unknown, disabled, two-factor and SSO account: equal answers."""
    faces = []
    for number, name in enumerate(NAMES):
        body = {"identifier": name, "password": "wrong"}
        client = f"198.51.100.{number}"
        faces.append([face(site.post(client=client, **{kind: body}), name) for _ in range(6)])
    assert all(each == faces[0] for each in faces[1:])
    assert [status for status, _, _ in faces[0]] == [401] * 5 + [429]


@pytest.mark.parametrize("name", NAMES)
def test_every_check_costs_one_hash(site: Site, name: str) -> None:
    """A53: exactly one hash is computed for a try, whoever it is for; none once refused."""
    site.statuses(6, name)
    assert len(site.spy.checks) == 5


def test_right_password_of_a_locked_account(site: Site) -> None:
    """A55: at the limit right and wrong look alike; no hash, no session, no rehash, no unlock."""
    site.statuses(5)
    site.spy.rehash = True
    before = site.people.by_key["key-1"].password_hash
    wrong, right = site.login(), site.login("vera", "right vera")
    assert face(wrong, "vera") == face(right, "vera")
    assert right.status_code == 429
    assert "Set-Cookie" not in right.headers
    assert len(site.spy.checks) == 5
    assert site.people.by_key["key-1"].password_hash == before
    assert site.login("vera", "right vera").status_code == 429


@pytest.mark.parametrize("name", ["dora", "tess"])
def test_right_password_of_an_account_that_may_not_enter(site: Site, name: str) -> None:
    """A disabled or two-factor account's right password looks and counts like a wrong one."""
    faces = [face(site.login(name, password), name) for password in (f"right {name}", "wrong")]
    assert faces[0] == faces[1]
    assert site.statuses(4, name, f"right {name}") == [401] * 3 + [429]


def test_real_dummy_hash(site_factory: Callable[..., Site]) -> None:
    """A53: with real hashing, an unknown name and one without a password are 401 too."""
    site = site_factory()
    assert site.state is not None
    site.state.passwords = site.spy.real
    assert [site.login(name).status_code for name in NAMES] == [401] * 5
