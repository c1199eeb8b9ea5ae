"""Who is asking, over HTTP: lists, prefixes, resolve, normalisers, destinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask import request

from authguard import AccountKey, ConfigurationError
from authguard.flask import AuthGuard, current_attempt
from authguard.flask.state import state_of
from authguard.identity import normalise_case_sensitive, normalise_identifier, read_phone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

    from tests.flask.conftest import Site


@pytest.fixture
def auth_factory(bare_app: Flask) -> Iterator[Callable[..., AuthGuard]]:
    """Make extensions without the blueprint; their stores are closed afterwards."""

    def make(**how: Any) -> AuthGuard:
        return AuthGuard(bare_app, **how)

    yield make
    state = state_of(bare_app)
    if state is not None:
        state.guard.close()


def test_a_denylisted_client_is_told_in_json_and_on_a_page(
    site_factory: Callable[..., Site],
) -> None:
    """403, not to be stored, without a wait that would be a lie; nothing is checked or charged."""
    site = site_factory(AUTHGUARD_DENYLIST=["203.0.113.0/24"])
    answer = site.login("vera", "right vera")
    assert (answer.status_code, answer.mimetype) == (403, "application/problem+json")
    assert answer.json == {
        "type": "about:blank",
        "title": "Forbidden",
        "status": 403,
        "detail": "This is not possible from your address.",
    }
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Retry-After" not in answer.headers
    page = site.post(data={"identifier": "vera", "password": "right vera"})
    assert (page.status_code, page.mimetype) == (403, "text/html")
    assert "Signing in is not possible from your address." in page.text
    assert site.post(json={}).status_code == 403
    assert site.spy.checks == []
    assert site.used(client="198.51.100.7") == 0
    assert site.login("vera", "right vera", client="198.51.100.7").status_code == 200


def test_an_apps_own_handler_may_answer_for_the_denylist(site_factory: Callable[..., Site]) -> None:
    """The refusal is a werkzeug Forbidden, so an errorhandler(403) just works."""
    site = site_factory(AUTHGUARD_DENYLIST=["203.0.113.0/24"])
    site.app.register_error_handler(403, lambda _error: ("not from here", 403))
    answer = site.login("vera", "right vera")
    assert (answer.status_code, answer.text) == (403, "not from here")
    assert answer.headers["Cache-Control"] == "no-store"


def test_an_allowlisted_office_types_wrongly_as_often_as_it_likes(
    site_factory: Callable[..., Site],
) -> None:
    """B144: no limit by address applies, malformed requests included; the account's hold."""
    site = site_factory(AUTHGUARD_ALLOWLIST=["203.0.113.0/24"])
    for number in range(25):
        assert site.login(f"user-{number}").status_code == 401
        assert site.post(json={}).status_code == 400
    assert site.statuses(6, "vera") == [401] * 5 + [429]


def test_prefixes_are_a_setting(site_factory: Callable[..., Site]) -> None:
    """B036: with /56 two of its /64s share a budget; the next /56 has its own."""
    site = site_factory(AUTHGUARD_PREFIXES={"client": [32, 56]})
    for number in range(20):
        client = f"2001:db8:1:2{number:02x}::1"
        assert site.login(f"user-{number}", client=client).status_code == 401
    assert site.login("another", client="2001:db8:1:2ff::1").status_code == 429
    assert site.login("another", client="2001:db8:1:300::1").status_code == 401


def test_secrets_can_be_rotated(site_factory: Callable[..., Site]) -> None:
    """A list of secrets is read, and the limits hold under both."""
    site = site_factory(AUTHGUARD_SECRET=["of the next year: 0123456789abcdef", "of this: " * 4])
    assert site.statuses(6, "vera") == [401] * 5 + [429]


def test_resolve_gives_all_names_one_budget(
    auth_factory: Callable[..., AuthGuard], bare_app: Flask
) -> None:
    """A24, B156: without the blueprint, by any name and in any view, five tries in all."""
    names = {"vera": "key-1", "vera@example.test": "key-1", "+14155550101": "key-1"}
    auth = auth_factory(resolve=lambda text: names.get(normalise_identifier(text)))
    counted: list[str | None] = []

    @bare_app.post("/login")
    @auth.protect("login", account="name")
    def login() -> str:
        counted.append(current_attempt.account)
        return ""

    @bare_app.post("/change-password")
    @auth.protect("login", account=lambda: AccountKey("key-1"))
    def change() -> str:
        counted.append(current_attempt.account)
        return ""

    browser = bare_app.test_client()
    for name in ("vera", " VERA@example.test", "+1 (415) 555-0101"):
        assert browser.post("/login", data={"name": name}).status_code == 200
    for _ in range(2):
        assert browser.post("/change-password").status_code == 200
    assert browser.post("/login", data={"name": "vera"}).status_code == 429
    assert browser.post("/change-password").status_code == 429
    assert counted == ["key-1"] * 5
    assert browser.post("/login", data={"name": "Ghost"}).status_code == 200
    assert counted[-1] == "ghost"


def test_resolve_beside_the_blueprint_stops_the_start(
    auth_factory: Callable[..., AuthGuard], bare_app: Flask
) -> None:
    """AG020: two ways to look a name up could give one account two budgets."""
    auth = auth_factory(resolve=lambda _text: None)
    with pytest.raises(ConfigurationError, match="AG020"):
        bare_app.register_blueprint(auth.blueprint(accounts=object()))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["resolve", "normalise"])
def test_what_is_no_function_stops_the_start(
    auth_factory: Callable[..., AuthGuard], way: str
) -> None:
    """AG028: the extension tells it at the start as well."""
    with pytest.raises(ConfigurationError, match=f"AG028 {way}"):
        auth_factory(**{way: "find_user"})


def test_a_destination_can_be_read_by_the_view(site_factory: Callable[..., Site]) -> None:
    """A function may give a phone number that it has read by its own region."""
    limits = [{"name": "quota", "by": ["destination"], "sliding_log": "2/1h"}]
    site = site_factory(AUTHGUARD_POLICY={"send": {"limits": limits}})

    @site.app.post("/send")
    @site.auth.protect(
        "send",
        account="name",
        destination=lambda: read_phone(request.form["phone"], region="US"),
    )
    def send() -> str:
        return ""

    spellings = ["415-555-0101", "+1 415 555 0101", "(415) 555 0101"]
    answers = [
        site.post("/send", data={"name": "vera", "phone": phone}).status_code for phone in spellings
    ]
    assert answers == [200, 200, 429]


def test_the_guard_looks_names_up_as_the_blueprint_does(site: Site) -> None:
    """B140: in a shell, an account is shown and opened by any of its names."""
    assert site.statuses(5, "vera@example.test") == [401] * 5
    assert not site.guard.peek("login", account="Vera").allowed
    assert site.guard.clear("login", account="vera").entries == 5
    assert site.login("vera").status_code == 401


def test_known_and_unknown_names_are_looked_up_equally_often(site: Site) -> None:
    """A53: one look-up for a sign-in, whether anybody has the name or not."""
    site.login("vera")
    site.login("ghost")
    assert site.people.asked == ["vera", "ghost"]


def test_a_normaliser_of_the_apps_choice(
    auth_factory: Callable[..., AuthGuard], bare_app: Flask
) -> None:
    """Where case tells accounts apart, each spelling is an account of its own."""
    auth = auth_factory(normalise=normalise_case_sensitive)

    @bare_app.post("/login")
    @auth.protect("login", account="name")
    def login() -> str:
        return str(current_attempt.account)

    browser = bare_app.test_client()
    answers = [browser.post("/login", data={"name": "Vera"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert browser.post("/login", data={"name": " vera "}).text == "vera"


def test_a_view_that_sends_messages(
    site_factory: Callable[..., Site],
) -> None:
    """A23, A83: a view's destination counts whoever asks; a broken one is 400 for its client."""
    policies = {
        "send": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": "9/1h"},
                {"name": "client", "by": ["client"], "sliding_log": "9/1h"},
                {"name": "quota", "by": ["destination"], "sliding_log": "3/1h"},
            ]
        }
    }
    site = site_factory(AUTHGUARD_POLICY=policies)
    sent: list[str] = []

    @site.app.post("/send")
    @site.auth.protect("send", account="name", destination="phone")
    def send() -> str:
        sent.append(str(current_attempt.account))
        return ""

    def ask(name: str, phone: str | None) -> int:
        fields = {"name": name} | ({} if phone is None else {"phone": phone})
        return site.post("/send", data=fields).status_code

    spellings = ["+1 (415) 555-0101", "+14155550101", "+1-415-555-0101", "+1 415 555 0101"]
    assert [ask(f"user-{n}", phone) for n, phone in enumerate(spellings)] == [200] * 3 + [429]
    assert [ask("vera", phone) for phone in ("call me", "", None)] == [400] * 3
    assert sent == ["user-0", "user-1", "user-2"]
    peek = site.guard.peek("send", account="vera", client=site.home)
    assert [verdict.remaining for verdict in peek.verdicts] == [9, 3]


def test_several_attempts_in_one_request_count_for_its_client(
    site_factory: Callable[..., Site],
) -> None:
    """A46: behind a proxy, a batch of sign-ins counts for whoever sent it, one by one."""
    site = site_factory(AUTHGUARD_TRUSTED_PROXIES=["10.0.0.1/32"])

    @site.app.post("/batch")
    def batch() -> str:
        client = site.auth.client_address()
        for number in range(20):
            site.auth.guard.attempt("login", account=f"user-{number}", client=client)
        return str(client)

    forwarded = {"X-Forwarded-For": "6.6.6.6, 198.51.100.7"}
    assert site.post("/batch", client="10.0.0.1", headers=forwarded).text == "198.51.100.7"
    assert site.login("vera", client="10.0.0.1", headers=forwarded).status_code == 429
    assert site.login("vera", client="10.0.0.1").status_code == 401
