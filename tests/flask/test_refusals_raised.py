"""A refusal is an exception for whoever looks for one, and its default response for all others."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, Flask, Request, Response, request
from werkzeug.datastructures import ImmutableMultiDict
from werkzeug.exceptions import HTTPException
from werkzeug.utils import cached_property

from authguard.errors import InvalidInput
from authguard.flask import AuthGuard, Refused, current_attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.flask.conftest import Site

DATA = {"username": "vera"}
JSON = {"Accept": "application/json"}
PAGE = {"Accept": "text/html"}


def door() -> tuple[str, int]:
    """Find every password wrong."""
    return "wrong", 401


def gate() -> tuple[str, int]:
    """Do the same, as a view that is limited."""
    return "wrong", 401


def passing_on(view: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a view with what does nothing, but could catch what the view raises."""

    @wraps(view)
    def pass_on(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return pass_on


@pytest.fixture
def own(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site with the same protected view twice: as it is, and below another decorator."""
    site = site_factory(clock=clock)
    protected = site.auth.protect("login", account="username")(door)
    limited = site.auth.limit("login", by=lambda: request.form["username"])(gate)
    for name, view in (("door", protected), ("limit", limited)):
        site.app.add_url_rule(f"/{name}", name, view, methods=["POST"])
        site.app.add_url_rule(f"/below/{name}", f"b-{name}", passing_on(view), methods=["POST"])
    return site


def told(answer: TestResponse) -> tuple[str, list[tuple[str, str]], bytes]:
    """Give all of an answer."""
    return answer.status, sorted(answer.headers), answer.data


@pytest.mark.parametrize("headers", [JSON, PAGE, {}], ids=["json", "page", "any"])
@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("door", DATA, 429),
        ("door", {}, 400),
        ("door", {"username": "x" * 20_000}, 413),
        ("limit", DATA, 429),
    ],
)
def test_both_ways_answer_the_same(
    own: Site, path: str, data: dict[str, str], status: int, headers: dict[str, str]
) -> None:
    """B064: whether Flask is handed the response or catches the exception, not a byte differs."""
    for _ in range(5):
        own.post(f"/{path}", data=DATA)
    straight = own.post(f"/{path}", data=data, headers=headers)
    raised = own.post(f"/below/{path}", data=data, headers=headers)
    assert straight.status_code == status
    assert told(straight) == told(raised)


@pytest.mark.parametrize("path", ["/door", "/limit"])
def test_a_decorator_above_sees_it(site_factory: Callable[..., Site], path: str) -> None:
    """B067: a decorator above the view can catch the refusal, and answer it by itself."""
    site = site_factory()
    seen: list[Refused] = []

    def catching(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def catch(*args: Any, **kwargs: Any) -> Any:
            try:
                return view(*args, **kwargs)
            except Refused as error:
                seen.append(error)
                return "later", 429

        return catch

    guarded = site.auth.protect("login", account="username")(door)
    counted = site.auth.limit("login", by=lambda: "vera")(gate)
    view = catching(guarded if path == "/door" else counted)
    site.app.add_url_rule(path, "view", view, methods=["POST"])
    answers = [site.post(path, data=DATA) for _ in range(6)]
    assert answers[-1].text == "later"
    assert answers[-1].headers.getlist("Retry-After") == [str(seen[0].retry_after)]
    assert answers[-1].headers["Cache-Control"] == "no-store"


def test_an_app_may_trap_it(site_factory: Callable[..., Site]) -> None:
    """TRAP_HTTP_EXCEPTIONS raises a refusal as it does any other HTTP exception."""
    site = site_factory(TRAP_HTTP_EXCEPTIONS=True)
    site.app.add_url_rule(
        "/door", "d", site.auth.protect("login", account="username")(door), methods=["POST"]
    )
    for _ in range(5):
        site.post("/door", data=DATA)
    with pytest.raises(Refused):
        site.post("/door", data=DATA)
    with pytest.raises(Refused):
        site.login()


class OwnWay(Flask):
    """An app that handles exceptions in a way of its own."""

    def handle_user_exception(self, e: Exception) -> Any:
        """Answer all refusals alike."""
        return Response("own", 418) if isinstance(e, Refused) else super().handle_user_exception(e)


@pytest.mark.parametrize("how", ["class", "patch"])
def test_an_app_may_have_its_own_way(bare_app: Flask, how: str) -> None:
    """A subclass of Flask, or an extension that patches the app, handles refusals as it likes."""
    app = bare_app
    if how == "class":
        app = OwnWay(__name__)
        app.config.update(bare_app.config)
    else:
        usual = app.handle_user_exception

        def handle(error: Exception) -> Any:
            return Response("own", 418) if isinstance(error, Refused) else usual(error)

        app.handle_user_exception = handle  # type: ignore[method-assign]
    auth = AuthGuard(app)
    app.post("/door")(auth.protect("login", account="username")(door))
    answers = [app.test_client().post("/door", data=DATA) for _ in range(6)]
    with app.app_context():
        auth.guard.close()
    assert answers[-1].status_code == 418
    assert answers[-1].headers["Cache-Control"] == "no-store"


def test_handlers_of_other_blueprints_and_codes_don_t_count(
    site_factory: Callable[..., Site],
) -> None:
    """B067: an app's 404 page and another blueprint's 429 page leave a refusal as it is."""
    site = site_factory()
    other = Blueprint("other", __name__)
    other.register_error_handler(429, lambda _: ("other", 429))
    site.app.register_blueprint(other)
    site.app.register_error_handler(404, lambda _: ("nothing", 404))
    site.statuses(5)
    answer = site.login()
    assert answer.status_code == 429
    assert answer.mimetype == "application/problem+json"


def test_a_handler_for_all_exceptions_sees_it(site_factory: Callable[..., Site]) -> None:
    """B067: errorhandler(Exception) is given the refusal too, by the ready-made routes as well."""
    site = site_factory()
    seen: list[Exception] = []

    @site.app.errorhandler(Exception)
    def handle(error: Exception) -> Any:
        seen.append(error)
        return error if isinstance(error, HTTPException) else ("broken", 500)

    site.statuses(5)
    assert site.login().status_code == 429
    assert isinstance(seen[0], Refused)


def test_what_the_app_adds_to_a_refusal_is_kept_in_bounds(
    site_factory: Callable[..., Site],
) -> None:
    """B064: fields that an after_request adds go out, and never a wait or a cache of its own."""
    site = site_factory()

    @site.app.after_request
    def add(response: Response) -> Response:
        response.headers["X-App"] = "1"
        response.headers.add("Retry-After", "1")
        response.headers.add("Cache-Control", "public")
        return response

    site.statuses(5)
    answer = site.login()
    assert answer.headers["X-App"] == "1"
    assert answer.headers.getlist("Cache-Control") == ["no-store"]
    assert [int(wait) > 1 for wait in answer.headers.getlist("Retry-After")] == [True]


FORMS = {
    "plain": b"username=vera&password=x",
    "percent": b"user%6Eame=v%C3%A9ra",
    "plus": b"username=ve+ra",
    "no UTF-8": b"username=v%FFra",
    "raw bytes": b"username=v\xc3\xa9ra",
    "raw no UTF-8": b"username=v\xffra",
    "semicolon": b"username=vera;password=x",
    "empty": b"username=&password=x",
    "blank": b"username",
    "twice": b"username=vera&username=omar",
    "null": b"username=ve%00ra",
    "broken percent": b"username=100%&x=%zz",
    "many": b"&".join(b"a%d=1" % number for number in range(500)) + b"&username=vera",
}


@pytest.mark.parametrize("content_type", ["", "; charset=utf-8", "; charset=latin-1"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_counted_is_what_the_view_reads(
    site_factory: Callable[..., Site], form: str, content_type: str
) -> None:
    """A form's name is counted as ``request.form`` gives it to the view, or refused."""
    site = site_factory(blueprint=False)
    read: list[tuple[str | None, list[str]]] = []

    def view() -> tuple[str, int]:
        read.append((current_attempt.account, request.form.getlist("username")))
        return "wrong", 401

    protected = site.auth.protect("login", account="username")(view)
    site.app.add_url_rule("/door", "door", protected, methods=["POST"])
    answer = site.post(
        "/door",
        data=FORMS[form],
        headers={"Content-Type": f"application/x-www-form-urlencoded{content_type}"},
    )
    assert answer.status_code == (401 if read else 400)
    for counted, given in read:
        assert [counted] == [site.guard.account_key(each) for each in given]
    with site.app.test_request_context(
        "/door",
        method="POST",
        data=FORMS[form],
        content_type=f"application/x-www-form-urlencoded{content_type}",
    ):
        given = request.form.getlist("username")
    try:
        usable = len(given) == 1 and bool(given[0]) and bool(site.guard.account_key(given[0]))
    except InvalidInput:
        usable = False
    assert bool(read) is usable


def test_a_form_that_was_read_before_counts_as_it_was_read(
    site_factory: Callable[..., Site],
) -> None:
    """Where the app has read the form already, that reading is the one that counts."""
    site = site_factory(blueprint=False)
    view = site.auth.protect("login", account="username")(door)
    site.app.add_url_rule("/door", "door", view, methods=["POST"])

    @site.app.before_request
    def look() -> None:
        request.get_data()
        request.form.get("username")

    assert site.post("/door", data={"username": "key-1"}).status_code == 401
    assert site.used() == 1


class Swapped(Request):
    """A request of an app that reads names in a way of its own."""

    @cached_property
    def form(self) -> ImmutableMultiDict[str, str]:
        """Give the key for the name."""
        self._load_form_data()
        given = self.__dict__["form"]
        return ImmutableMultiDict([("username", "key-1")] if given["username"] == "mine" else [])


def test_an_app_s_own_reading_of_forms_counts(site_factory: Callable[..., Site]) -> None:
    """A request class of the app's own, which reads forms otherwise, is what is counted by."""
    site = site_factory(blueprint=False)
    site.app.request_class = Swapped
    view = site.auth.protect("login", account="username")(door)
    site.app.add_url_rule("/door", "door", view, methods=["POST"])
    assert site.post("/door", data={"username": "mine"}).status_code == 401
    assert site.used() == 1


def test_a_long_accept_is_understood(site: Site) -> None:
    """What a client accepts is read however long it says it."""
    accept = ", ".join(["text/x-unknown"] * 100 + ["application/json"])
    answer = site.login(headers={"Accept": accept})
    assert answer.mimetype == "application/problem+json"
