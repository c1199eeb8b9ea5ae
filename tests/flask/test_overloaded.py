"""The load alone refuses: 503 on every route, with a wait, and nobody's fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from flask import jsonify

from authguard import http as answers
from authguard.flask import Refused, Shed, signals
from tests.flask.conftest import ALL_OF_S, HOME

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.flask.conftest import Site

JSON = {"Accept": "application/json"}

#: Everything of set-up S, with elastic limits by client in front.
ELASTIC: dict[str, Any] = {
    **ALL_OF_S,
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/300s"},
            {"name": "client", "by": ["client"], "sliding_log": "20/300s", "elastic": True},
        ]
    },
    "api": {
        "limits": [
            {"name": "key", "by": ["account"], "sliding_log": "50/60s", "elastic": True},
            {"name": "plain", "by": ["account"], "sliding_log": "12/60s"},
        ]
    },
    "plain": {"limits": [{"name": "key", "by": ["account"], "sliding_log": "12/60s"}]},
    "lanes": {
        "limits": [
            {"name": "staff", "by": ["global"], "priority": "staff", "sliding_log": "99/60s"},
            {
                "name": "rest",
                "by": ["global"],
                "priority": "normal",
                "sliding_log": "10/60s",
                "elastic": True,
            },
        ]
    },
}


@pytest.fixture
def site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site with elastic limits, beside the blueprint one view of each kind."""
    made = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ELASTIC)
    door = made.auth.protect("login", account="name")(lambda: ("wrong", 401))
    made.app.add_url_rule("/door", "door", door, methods=["POST"])
    report = made.auth.limit("api", by=lambda: "k-1")(lambda: "fine")
    made.app.add_url_rule("/api", "api", report)
    for lane in ("staff", "normal"):
        view = made.auth.limit("lanes", priority=lane)(lambda: "fine")
        made.app.add_url_rule(f"/{lane}", lane, view)
    return made


def check_shed(answer: TestResponse, name: str, wait_s: int) -> int:
    """Check that the answer is the 503 of the load, and give its wait."""
    assert answer.status_code == 503
    assert answer.headers.getlist("Cache-Control") == ["no-store"]
    (wait,) = answer.headers.getlist("Retry-After")
    assert re.fullmatch("[1-9][0-9]*", wait)
    assert wait_s <= int(wait) <= wait_s + 5
    assert not [field for field, _ in answer.headers if "RateLimit" in field]
    if answer.mimetype == "application/problem+json":
        assert answer.json == {
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporary Reduced Capacity",
            "status": 503,
            "detail": "There is too much to do at the moment. Wait before trying again.",
            "violated-policies": [name],
            "retry_after": int(wait),
        }
    return int(wait)


def ask(site: Site, path: str, *, client: str = HOME, **how: Any) -> TestResponse:
    """Send one GET."""
    return site.browser(client).get(path, **how)


def test_a_limited_view_sheds(site: Site) -> None:
    """B068: a fifth of 50 gets in, the rest is 503 with a wait, and it ends with the load."""
    site.guard.load(0.2, for_ms=30_000)
    assert [ask(site, "/api").status_code for _ in range(10)] == [200] * 10
    check_shed(ask(site, "/api"), "api", 30)
    site.guard.load(1)
    assert ask(site, "/api").status_code == 200


def test_what_was_counted_before_is_not_shown(site: Site) -> None:
    """Where the load refuses below another limit, the 503 shows no quota of that one either."""
    plain = site.auth.limit("plain", by=lambda: "k-1")
    view = plain(site.auth.limit("api", by=lambda: "k-1")(lambda: "fine"))
    site.app.add_url_rule("/both", "both", view)
    site.guard.load(0, for_ms=30_000)
    check_shed(ask(site, "/both"), "api", 30)
    site.guard.load(1)
    assert ask(site, "/both").headers["RateLimit"].startswith('"plain-key";r=10;')


def test_what_the_whole_limit_refuses_is_429(site: Site) -> None:
    """A limit that refuses whatever the load makes it the client's 429, not the service's 503."""
    site.guard.load(0.2, for_ms=30_000)
    assert [ask(site, "/api").status_code for _ in range(11)] == [200] * 10 + [503]
    site.guard.load(1)
    assert [ask(site, "/api").status_code for _ in range(2)] == [200] * 2
    site.guard.load(0.2, for_ms=30_000)
    answer = ask(site, "/api")
    assert (answer.status_code, answer.json["violated-policies"]) == (429, ["api-key", "api-plain"])


def test_waits_differ(site: Site) -> None:
    """Refused at the same moment, clients come back at moments up to 5 s apart."""
    site.guard.load(0, for_ms=30_000)
    waits = {check_shed(ask(site, "/api"), "api", 30) for _ in range(60)}
    assert len(waits) > 1


def test_priorities_keep_their_lane(site: Site) -> None:
    """With the load at nothing ordinary requests are 503 and staff's all get in."""
    site.guard.load(0, for_ms=30_000)
    for _ in range(20):
        assert ask(site, "/staff").status_code == 200
        check_shed(ask(site, "/normal"), "lanes", 30)


@pytest.mark.parametrize("kind", ["json", "page"])
def test_protect_and_blueprint(site: Site, kind: str) -> None:
    """B068: sign-ins that the load refuses are 503, as JSON and as pages; nothing is checked."""
    site.guard.load(0, for_ms=30_000)
    how = {"headers": JSON} if kind == "json" else {}
    fields = {"identifier": "vera", "password": "right vera"}
    sent = {"json": fields} if kind == "json" else {"data": fields}
    for answer in (site.post("/door", data={"name": "vera"}, **how), site.post(**sent)):
        check_shed(answer, "login", 30)
        assert answer.mimetype == ("application/problem+json" if kind == "json" else "text/html")
    assert site.spy.checks == []
    site.guard.load(1)
    assert site.login("vera", "right vera").status_code == 200


def test_a_page_of_a_limited_view(site: Site) -> None:
    """A browser gets a page that tells the wait."""
    site.guard.load(0, for_ms=30_000)
    answer = ask(site, "/api", headers={"Accept": "text/html"})
    wait = check_shed(answer, "api", 30)
    assert f"{wait} seconds" in answer.text


def test_malformed_requests_are_shed_too(site: Site) -> None:
    """B068: a request that names nobody is 503 as well where its client's limit is shed."""
    site.guard.load(0, for_ms=30_000)
    check_shed(site.post(json={}), "login", 30)


def test_the_apps_own_answer(site: Site) -> None:
    """B067: the app's 503 page knows the wait and the decision, and keeps the wait exactly once."""
    seen: list[Shed] = []

    @site.app.errorhandler(503)
    def handle(error: Shed) -> Any:
        seen.append(error)
        return jsonify(wait=error.retry_after), 503

    site.app.register_error_handler(429, lambda _: ("never", 429))
    site.guard.load(0, for_ms=30_000)
    for path in ("/api", "/normal"):
        answer = ask(site, path)
        error = seen.pop()
        assert isinstance(error, Shed)
        assert not isinstance(error, Refused)
        assert answer.headers.getlist("Retry-After") == [str(error.retry_after)]
        assert answer.headers["Cache-Control"] == "no-store"
        assert error.decision.shed


def test_it_is_told_as_a_refusal(site: Site) -> None:
    """The signal attempt_refused carries the decision, and that says if the load alone refused."""
    told: list[Any] = []

    def listen(_sender: object, *, action: str, decision: Any) -> None:
        told.append((action, decision.shed))

    site.guard.load(0, for_ms=30_000)
    with signals.attempt_refused.connected_to(listen):
        ask(site, "/api")
        site.login()
    assert told == [("api", True), ("login", True)]


def elastic_codes(site_factory: Callable[..., Site], clock: Callable[[], int], by: str) -> Site:
    """Make a site where sending codes follows the load, by what is given."""
    sends = [
        {"name": "plain", "by": ["client"], "sliding_log": "20/1h"},
        {"name": "shed", "by": [by], "sliding_log": "20/1h", "elastic": True},
    ]
    policy = ALL_OF_S | {"otp": {"send": {"limits": sends}, "verify": ALL_OF_S["otp"]["verify"]}}
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=policy)


@pytest.mark.parametrize("by", ["client", "account", "destination"])
def test_asking_for_a_code(
    site_factory: Callable[..., Site], clock: Callable[[], int], by: str
) -> None:
    """Where the load refuses a new code the answer is 503, account or not, and nothing goes out."""
    site = elastic_codes(site_factory, clock, by)
    site.guard.load(0, for_ms=30_000)
    for who in ("vera", "nobody"):
        check_shed(site.send_code(who), "otp-send", 30)
    assert site.messages() == []


def test_the_second_factor(site_factory: Callable[..., Site], clock: Callable[[], int]) -> None:
    """After a right password the code before goes on while the load refuses a new one; else 503."""
    site = elastic_codes(site_factory, clock, "client")
    site.guard.load(0, for_ms=30_000)
    check_shed(site.login("tess", "right tess"), "otp-send", 30)
    site.guard.load(1)
    first = site.login("tess", "right tess").json
    site.guard.load(0, for_ms=30_000)
    again = site.login("tess", "right tess")
    assert again.status_code == 200
    assert again.json["challenge"] == first["challenge"]
    assert again.json["retry_after"] == 30
    (message,) = site.messages()
    assert site.verify(first["challenge"], message.code).status_code == 200


def test_a_message_is_withheld_unseen(
    site_factory: Callable[..., Site], clock: Callable[[], int]
) -> None:
    """Where the load refuses the message alone, the answer is that of any send, account or not."""
    site = elastic_codes(site_factory, clock, "number_range")
    told: list[Any] = []

    def listen(_sender: object, *, action: str, reasons: Any, **_more: object) -> None:
        told.append((action, reasons))

    site.guard.load(0, for_ms=30_000)
    with signals.send_withheld.connected_to(listen):
        sent = [site.send_code(who) for who in ("vera", "nobody")]
        assert site.messages() == []
    assert [answer.status_code for answer in sent] == [202, 202]
    assert [set(answer.json) for answer in sent] == [{"status", "challenge", "retry_after"}] * 2
    assert told == [("otp.send", ("shed",))]


@pytest.mark.parametrize("jitter_s", [0, 5])
def test_the_answer_itself(site: Site, jitter_s: int) -> None:
    """The answer's body and field agree, and its wait is the decision's and the jitter."""
    site.guard.load(0, for_ms=29_001)
    decision = site.guard.peek("api", account="k-1")
    answer = answers.overloaded(decision, jitter_s=jitter_s)
    assert answer.retry_after == answer.body["retry_after"] == 30 + jitter_s
