"""protect(): a view of the app's own, behind the same limits as the ready-made one."""

from __future__ import annotations

import io
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, request
from flask.views import MethodView

from authguard.errors import ConfigurationError, HashingUnavailable
from authguard.flask import AuthGuard, current_attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from tests.flask.conftest import Site

OTHER = "198.51.100.7"


class Door:
    """An app's own sign-in view, and how often it looked at a password."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> tuple[str, int]:
        """Look at the password."""
        self.calls += 1
        given: Any = request.get_json() if request.is_json else request.values
        if given.get("password") == "right":
            current_attempt.succeed()
            return "in", 200
        return "wrong", 401


@pytest.fixture
def door() -> Door:
    """Give a view that counts its calls."""
    return Door()


@pytest.fixture
def own(site_factory: Callable[..., Site], clock: Callable[[], int], door: Door) -> Site:
    """Give a site whose /door is a protected view of its own, beside the blueprint."""
    site = site_factory(clock=clock)
    protected = site.auth.protect("login", account="username")(door.__call__)
    site.app.add_url_rule("/door", "door", protected, methods=["GET", "POST"])
    return site


def knock(site: Site, who: str = "vera", password: str = "wrong", **how: Any) -> int:
    """Try the own view by form."""
    data = {"username": who, "password": password}
    return site.post("/door", data=data, **how).status_code


def test_own_view(own: Site, door: Door) -> None:
    """Five failures reach the view, the sixth try doesn't; a success before gives places back."""
    assert knock(own, password="right") == 200
    assert own.used() == 0
    assert [knock(own) for _ in range(5)] == [401] * 5
    assert knock(own, password="right") == 429
    assert door.calls == 6


def test_all_routes_share_the_accounts_budget(own: Site, door: Door) -> None:
    """A43: an own view and the ready-made one count the same account together."""
    assert own.statuses(3) == [401] * 3
    assert [knock(own, "vera@example.test"), knock(own, "VERA")] == [401, 401]
    assert [knock(own), own.login().status_code] == [429, 429]
    assert door.calls == 2


@pytest.mark.parametrize("how", ["form", "json", "query"])
def test_the_name_where_the_view_reads_it(own: Site, door: Door, how: str) -> None:
    """B157: the name counts from form, JSON or query; five failures in all are evaluated."""
    given = {"username": "vera", "password": "wrong"}
    names = {"form": "data", "json": "json", "query": "query_string"}
    assert own.post("/door", **{names[how]: given}).status_code == 401
    assert [knock(own) for _ in range(5)] == [401] * 4 + [429]
    assert door.calls == 5


def test_name_in_several_fields(site_factory: Callable[..., Site], door: Door) -> None:
    """B157: a function names the account where the name may come in several fields."""
    site = site_factory(blueprint=False)

    def name() -> str | None:
        return request.values.get("email_or_username") or request.values.get("username")

    protected = site.auth.protect("login", account=name)(door.__call__)
    site.app.add_url_rule("/door", "door", protected, methods=["GET", "POST"])
    for field in ("username", "email_or_username", "username", "email_or_username", "username"):
        answer = site.post("/door", data={field: "key-1", "password": "wrong"})
        assert answer.status_code == 401
    answer = site.post("/door", data={"email_or_username": "key-1", "password": "right"})
    assert answer.status_code == 429
    assert site.post("/door", data={"password": "right"}).status_code == 400
    assert site.browser().get("/door").status_code == 401
    assert door.calls == 6


def test_no_name_is_400(own: Site, door: Door) -> None:
    """B157, A25: without a name nothing is checked, and only the client is charged."""
    for how in ({"data": {"password": "x"}}, {"json": {"username": ["vera"]}}, {"data": b"x"}):
        assert own.post("/door", **how).status_code in (400, 415)
    assert door.calls == 0
    assert [own.used(), own.used("client")] == [0, 3]


def test_conflicting_names_are_400(own: Site, door: Door) -> None:
    """A name in the body and another in the query is refused: which one would the view read?"""
    answer = own.post("/door?username=omar", data={"username": "vera", "password": "right"})
    assert answer.status_code == 400
    assert door.calls == 0


def test_showing_the_form_is_free(own: Site, door: Door) -> None:
    """B154, A44: GET, HEAD and OPTIONS that name nobody cost nothing, other methods are 405."""
    browser = own.browser()
    for method in ("GET", "HEAD"):
        assert browser.open("/door", method=method).status_code == 401
    assert browser.options("/door").status_code == 200
    assert browser.put("/door").status_code == 405
    headers = {"X-HTTP-Method-Override": "POST"}
    assert browser.get("/door", headers=headers).status_code == 401
    assert [own.used(), own.used("client")] == [0, 0]


def test_guessing_by_get_is_not_free(own: Site, door: Door) -> None:
    """A GET or HEAD that names an account is an attempt like any other."""
    browser = own.browser()
    query = {"username": "vera", "password": "wrong"}
    answers = [
        browser.open("/door", method="HEAD" if number % 2 else "GET", query_string=query)
        for number in range(6)
    ]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert door.calls == 5


def test_guessing_by_the_body_of_a_get_is_not_free(own: Site, door: Door) -> None:
    """A GET that carries a body is an attempt too, since the view might read it."""
    browser = own.browser()
    guess = {"username": "vera", "password": "wrong"}
    answers = [browser.get("/door", json=guess).status_code for _ in range(6)]
    assert answers == [401] * 5 + [429]
    assert browser.get("/door", json={"name": "vera"}).status_code == 400
    assert door.calls == 5


def test_a_body_that_no_header_tells_of_is_a_body(own: Site, door: Door) -> None:
    """Over HTTP/2 a GET can bring a form without a length: such a guess is counted as well."""
    body = b"username=vera&password=wrong"

    def guess() -> int:
        environ = {"wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True}
        kind = "application/x-www-form-urlencoded"
        how: Any = {"environ_overrides": environ, "content_type": kind}
        return own.browser().get("/door", **how).status_code

    assert [guess() for _ in range(6)] == [401] * 5 + [429]
    assert door.calls == 5


def test_success_without_an_attempt(own: Site) -> None:
    """A free GET that tries to report a success fails loudly, so it can't be a way in."""
    with pytest.raises(RuntimeError, match="reserved no attempt"):
        own.browser().get("/door?password=right")


def test_get_only_view(site_factory: Callable[..., Site], door: Door) -> None:
    """A view that takes nothing but GET is reserved for every time; without a name it is 400."""
    site = site_factory()
    protected = site.auth.protect("login", account="username")(door.__call__)
    site.app.add_url_rule("/door", "door", protected)
    browser = site.browser()
    assert browser.get("/door").status_code == 400
    assert browser.get("/door?username=vera").status_code == 401
    assert [site.used(), site.used("client")] == [1, 2]


def test_one_failure_is_counted_once(site_factory: Callable[..., Site]) -> None:
    """B016: extension twice, blueprint and two decorators on its view: one failure, one entry."""
    site = site_factory()
    site.auth.init_app(site.app)
    AuthGuard().init_app(site.app)
    ready_made = site.app.view_functions["authguard.login"]
    once = site.auth.protect("login", account="identifier")(ready_made)
    twice = site.auth.protect("login", account="identifier")(once)
    site.app.view_functions["authguard.login"] = twice
    assert site.login().status_code == 401
    assert [site.used(), site.used("client")] == [1, 1]
    assert site.statuses(5) == [401] * 4 + [429]
    assert site.login("omar", "right omar").status_code == 200
    assert site.used(key="key-2") == 0


def test_attempt_is_of_this_request_alone(own: Site) -> None:
    """An app context held open over several requests doesn't make them share one attempt."""
    with own.app.app_context():
        assert own.statuses(6) == [401] * 5 + [429]


def test_each_destination_of_a_request_is_counted(site_factory: Callable[..., Site]) -> None:
    """Two sends in one request, to two numbers, are two attempts; the same one twice is one."""
    limits = [{"name": "quota", "by": ["destination"], "sliding_log": "2/1h"}]
    site = site_factory(AUTHGUARD_POLICY={"send": {"limits": limits}})
    numbers = ["+14155550101", "+14155550102"]
    one, other = (
        site.auth.protect("send", account="name", destination=lambda number=number: number)
        for number in numbers
    )
    site.app.add_url_rule("/send", "send", one(one(other(lambda: ""))), methods=["POST"])
    answers = [site.post("/send", data={"name": "vera"}).status_code for _ in range(3)]
    assert answers == [200, 200, 429]
    left = [site.guard.peek("send", destination=number).remaining for number in numbers]
    assert left == [0, 0]


def test_a_destination_is_asked_for_by_every_method(site_factory: Callable[..., Site]) -> None:
    """A GET that names an account and no destination is 400, not a send without a quota."""
    limits = [
        {"name": "account", "by": ["account"], "sliding_log": "9/1h"},
        {"name": "quota", "by": ["destination"], "sliding_log": "2/1h"},
    ]
    site = site_factory(AUTHGUARD_POLICY={"send": {"limits": limits}})
    sent: list[str] = []
    view = site.auth.protect("send", account="name", destination="phone")(
        lambda: sent.append("") or ""
    )
    site.app.add_url_rule("/send", "send", view, methods=["GET", "POST"])
    browser = site.browser()
    assert browser.get("/send?name=vera").status_code == 400
    assert browser.get("/send").status_code == 200  # the form
    assert browser.get("/send?name=vera&phone=%2B14155550101").status_code == 200
    assert len(sent) == 2


def test_a_second_extension_with_its_own_ways_stops_the_start(site: Site) -> None:
    """AG029: what it was given would count for nothing, so it is not taken silently."""
    AuthGuard(site.app)  # gives nothing: harmless
    for given in ({"resolve": str.lower}, {"normalise": str.lower}, {"clock": lambda: 0}):
        with pytest.raises(ConfigurationError, match="AG029"):
            AuthGuard(site.app, **given)


def test_refused_for_another_reason(own: Site, door: Door) -> None:
    """B022: a view that proves the password and then refuses leaves nothing counted."""

    @own.app.post("/closed")
    @own.auth.protect("login", account="username")
    def closed() -> tuple[str, int]:
        current_attempt.succeed()
        return "your account is disabled", 403

    @own.app.post("/broken")
    @own.auth.protect("login", account="username")
    def broken() -> str:
        raise ZeroDivisionError

    data = {"username": "omar"}
    assert [own.post("/closed", data=data).status_code for _ in range(10)] == [403] * 10
    assert own.used(key="key-2") == 0
    with pytest.raises(ZeroDivisionError):
        own.post("/broken", data=data)
    assert own.used(key="key-2") == 1


@pytest.mark.parametrize("by_hand", [False, True])
def test_release(own: Site, by_hand: bool) -> None:
    """B056: a view that could not hash is 503 and costs no try, released by hand or not."""

    @own.app.post("/busy")
    @own.auth.protect("login", account="username")
    def busy() -> str:
        if by_hand:
            current_attempt.release()
        raise HashingUnavailable("hash queue full")

    answer = own.post("/busy", data={"username": "vera"}, headers={"Accept": "application/json"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert [own.used(), own.used("client")] == [0, 0]


def test_busy_login_costs_nothing(own: Site) -> None:
    """In the ready-made login a full hash queue is 503 and gives the attempt back."""

    def full() -> None:
        raise HashingUnavailable("hash queue full")

    own.spy.before = full
    answer = own.login("vera", "right vera")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert [own.used(), own.used("client")] == [0, 0]


def test_nested_and_renamed_blueprints(site_factory: Callable[..., Site], door: Door) -> None:
    """B153: a protected blueprint under two parents, renamed: all its URLs share one budget."""
    site = site_factory()
    inner = Blueprint("inner", __name__)
    protected = site.auth.protect("login", account="username")(door.__call__)
    inner.add_url_rule("/door", "door", protected, methods=["POST"])
    for number, parent in enumerate((Blueprint("one", __name__), Blueprint("two", __name__))):
        parent.register_blueprint(inner, url_prefix=f"/in{number}", name=f"renamed{number}")
        site.app.register_blueprint(parent, url_prefix=f"/p{number}")
    data = {"username": "vera", "password": "wrong"}
    paths = ["/p0/in0/door", "/p1/in1/door"]
    answers = [site.post(paths[number % 2], data=data).status_code for number in range(6)]
    assert answers == [401] * 5 + [429]
    assert door.calls == 5


def test_ready_made_blueprint_nested_and_renamed(site: Site) -> None:
    """B153: the ready-made routes work nested and renamed, pages too, and share one budget."""
    parent = Blueprint("parent", __name__)
    parent.register_blueprint(site.auth.blueprint(accounts=site.people), name="again")
    site.app.register_blueprint(parent, url_prefix="/nested")
    page = site.browser().get("/nested/login")
    assert 'action="/nested/login"' in page.text
    assert "/nested/authguard-static/" in page.text
    data = {"identifier": "vera", "password": "right vera"}
    browser = site.browser()
    assert browser.post("/nested/login", data=data).location == "/nested/me"
    assert 'action="/nested/logout"' in browser.get("/nested/me").text
    site.statuses(3)
    wrong = data | {"password": "wrong"}
    answers = [site.post("/nested/login", data=wrong).status_code for _ in range(3)]
    assert answers == [401, 401, 429]


def test_spellings_of_the_path(own: Site) -> None:
    """B154, A44: every URL that leads to the view draws on its one budget of five."""
    paths = ["/auth/login", "/auth/%6Cogin", "//auth/login", "/auth/login/", "/AUTH/login"]
    for path in paths * 3:
        answer = own.post(
            path,
            json={"identifier": "vera", "password": "wrong"},
            base_url="http://localhost",
            follow_redirects=True,
        )
        assert answer.status_code in (401, 404, 429)
    assert len(own.spy.checks) == 5


def test_class_based_view(site_factory: Callable[..., Site], door: Door) -> None:
    """A MethodView takes the decorator as any other."""
    site = site_factory()

    class DoorView(MethodView):
        decorators = (site.auth.protect("login", account="username"),)

        def post(self) -> tuple[str, int]:
            return door()

    site.app.add_url_rule("/door", view_func=DoorView.as_view("door"))
    assert [knock(site) for _ in range(6)] == [401] * 5 + [429]


def test_protection_above_the_route(site_factory: Callable[..., Site]) -> None:
    """A decorator in the wrong order, which would protect nothing, fails the first request."""
    site = site_factory()

    @site.auth.protect("login", account="username")
    @site.app.post("/door")
    def door() -> str:
        return "open"

    with pytest.raises(ConfigurationError, match="AG022"):
        site.post("/door", data={"username": "vera"})
    with pytest.raises(ConfigurationError, match="AG022"):
        site.post("/door", data={"username": "vera"})


def test_late_init_app(bare_app: Flask, door: Door) -> None:
    """Views may be protected before init_app, as with any extension."""
    auth = AuthGuard()
    protected = auth.protect("login", account="username")(door.__call__)
    bare_app.add_url_rule("/door", "door", protected, methods=["POST"])
    auth.init_app(bare_app)
    with bare_app.app_context():
        guard = auth.guard
    try:
        browser = bare_app.test_client()
        data = {"username": "vera", "password": "wrong"}
        answers = [browser.post("/door", data=data).status_code for _ in range(6)]
        assert answers == [401] * 5 + [429]
    finally:
        guard.close()


def test_the_counted_name_is_told(own: Site) -> None:
    """B157: a view can check the very account that was counted, whatever fields a request has."""
    told: list[str | None] = []

    @own.app.post("/told")
    @own.auth.protect("login", account="username")
    def tell() -> str:
        told.append(current_attempt.account)
        return ""

    own.post("/told", data={"username": "Vera@example.test", "user": "omar"})
    own.post("/told", data={"username": " Nobody "})
    assert told == ["key-1", "nobody"]


def test_a_protection_lost_among_decorators_is_found(own: Site) -> None:
    """AG022: protect() above another decorator above the route protects nothing, and says so."""

    def audited(view: Callable[[], str]) -> Callable[[], str]:
        @wraps(view)
        def audit() -> str:
            return view()

        return audit

    @own.auth.protect("login", account="username")
    @audited
    @own.app.post("/lost")
    def lost() -> str:
        return "in"

    @own.app.post("/kept")
    @audited
    @own.auth.protect("login", account="username")
    def kept() -> str:
        return "in"

    with pytest.raises(ConfigurationError, match=r"AG022 endpoint 'lost'"):
        own.post("/kept", data={"username": "vera"})


def test_a_second_extension_looks_over_its_views_too(own: Site) -> None:
    """AG022: views that a second AuthGuard protects are looked over like the first one's."""
    second = AuthGuard(own.app)

    @second.protect("login", account="username")
    @own.app.post("/lost")
    def lost() -> str:
        return "in"

    with pytest.raises(ConfigurationError, match=r"AG022 endpoint 'lost'"):
        own.post("/lost", data={"username": "vera"})


def test_a_body_in_chunks_makes_a_get_an_attempt(own: Site, door: Door) -> None:
    """A GET whose body comes in chunks is no mere look at the form: it is counted or refused."""
    answer = own.browser().get("/door", headers={"Transfer-Encoding": "chunked"})
    assert answer.status_code == 400
    assert door.calls == 0
