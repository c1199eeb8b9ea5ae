"""What limited views show: RateLimit fields that parse, in range, once, and of nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import http_sf
import pytest
from flask import Response, g, jsonify, request

from authguard.errors import ConfigurationError
from authguard.flask import AuthGuard
from tests.flask.conftest import HOME, POLICY

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

WHOLE_SECONDS = re.compile(r"[1-9][0-9]*")
FIELDS = ("Retry-After", "RateLimit", "RateLimit-Policy", "Cache-Control", "Content-Type")
X_FIELDS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")

API: dict[str, Any] = {
    **POLICY,
    "api": {
        "v2": {
            "limits": [
                {
                    "name": "key",
                    "by": ["account"],
                    "sliding_log": "3/60s",
                    "tiers": {"pro": "9/60s"},
                },
                {
                    "name": "client",
                    "by": ["client"],
                    "sliding_log": "20/2s",
                    "tiers": {"pro": "40/2s"},
                },
                {"name": "all", "by": ["global"], "sliding_log": "100/60s"},
                {"name": "net", "by": ["network"], "sliding_log": "100/60s"},
                {"name": "wide", "by": ["client"], "ipv4_prefix": 20, "sliding_log": "99/60s"},
                {"name": "names", "by": ["client"], "distinct": "account", "limit": "50/1h"},
            ]
        }
    },
    "send": {"limits": [{"name": "cooldown", "by": ["account"], "cooldown": ["60s", "120s"]}]},
    "turn": {"limits": [{"name": "turn", "by": ["account"], "leaky_bucket": "10/1s", "queue": 9}]},
    "burst": {
        "limits": [
            {
                "name": "b",
                "by": ["account"],
                "token_bucket": "2/1s",
                "burst": 5,
                "tiers": {"pro": {"token_bucket": "1/10s", "burst": 9}},
            }
        ]
    },
    "quota": {"limits": [{"name": "day", "by": ["account"], "fixed_window": "10/24h"}]},
    "shed": {
        "limits": [
            {
                "name": "key",
                "by": ["account"],
                "token_bucket": "10/1s",
                "burst": 10,
                "elastic": True,
            },
            {"name": "client", "by": ["client"], "sliding_log": "1/60s"},
        ]
    },
    "one": {"limits": [{"name": "second", "by": ["account"], "sliding_log": "4/1s"}]},
    "open": {"limits": [{"name": "all", "by": ["global"], "sliding_log": "2/60s"}]},
}


@pytest.fixture
def site(site_factory: Callable[..., Site], clock: Clock) -> Site:
    """Give a site with a limited view for each action, by the key of a header."""
    return dressed(site_factory(clock=clock, AUTHGUARD_POLICY=API))


@pytest.fixture
def x_site(site_factory: Callable[..., Site], clock: Clock, monkeypatch: Any) -> Site:
    """Give the same with the older fields switched on."""
    monkeypatch.setattr("tests.flask.conftest.AuthGuard", with_x_ratelimit)
    return dressed(site_factory(clock=clock, AUTHGUARD_POLICY=API))


def with_x_ratelimit(*args: Any, **kwargs: Any) -> AuthGuard:
    """Make an extension that sends the older fields."""
    return AuthGuard(*args, x_ratelimit=True, **kwargs)


def dressed(site: Site) -> Site:
    """Register the views."""

    @site.app.before_request
    def prove() -> None:
        g.api_key = request.headers.get("X-Api-Key")

    for action in site.guard.policies:
        if action in ("api.v2", "send", "turn", "burst", "quota", "shed", "one"):
            limit = site.auth.limit(
                action,
                by=lambda: g.api_key,
                tier=lambda: request.args.get("tier"),
                cost=lambda: int(request.args.get("cost", "1")),
            )
            site.app.add_url_rule(f"/{action}", action, limit(answer))
    site.app.add_url_rule("/open", "open", site.auth.limit("open")(answer))
    both = site.auth.limit("api.v2", by=lambda: g.api_key)(
        site.auth.limit("quota", by=lambda: g.api_key)(answer)
    )
    site.app.add_url_rule("/both", "both", both)
    door = site.auth.limit("quota", by=lambda: g.api_key)(
        site.auth.protect("login", account="name")(lambda: ("wrong", 401))
    )
    site.app.add_url_rule("/door", "door", door, methods=["POST"])
    return site


def answer() -> Any:
    """Answer with the status, and the fields, that the request asks for."""
    status = int(request.args.get("status", "200"))
    return Response(
        "mine", status, dict(request.args.items(multi=True)) if "own" in request.args else {}
    )


def ask(site: Site, path: str, key: str | None = "k-1", **how: Any) -> TestResponse:
    """Send one request with a key, and check what must be true of every answer."""
    headers = how.pop("headers", {}) | ({} if key is None else {"X-Api-Key": key})
    given = site.browser(how.pop("client", HOME)).open(path, headers=headers, **how)
    for name in (*FIELDS, *X_FIELDS):
        assert len(given.headers.getlist(name)) <= 1, name
    return given


def shown(given: TestResponse) -> dict[str, dict[str, int]]:
    """Parse both fields, check that they fit, and give all parameters by the limit's name."""
    found: dict[str, dict[str, int]] = {}
    for name, parameters in (("RateLimit-Policy", {"q", "w"}), ("RateLimit", {"r", "t"})):
        items = http_sf.parse(given.headers.get(name, "").encode(), tltype="list")
        for item, values in items:
            assert isinstance(item, str)
            assert set(values) <= parameters
            assert all(type(value) is int and value >= 0 for value in values.values())
            found.setdefault(item, {}).update(values)
    for each in found.values():
        assert each["r"] <= each["q"]
        assert each.get("w", 1) >= 1
        if "Retry-After" in given.headers:
            assert each["t"] <= int(given.headers["Retry-After"])
    return found


def test_what_is_the_callers_own_is_shown(site: Site) -> None:
    """A60: limits by key and client, and none that others use up: global, network, wider nets."""
    assert shown(ask(site, "/api.v2")) == {
        "api-v2-key": {"q": 3, "w": 60, "r": 2, "t": 60},
        "api-v2-client": {"q": 20, "w": 2, "r": 19, "t": 2},
    }


def test_without_a_key_the_client_alone_is_shown(site: Site) -> None:
    """A60: who names no key learns nothing of any."""
    assert list(shown(ask(site, "/api.v2", None))) == ["api-v2-client"]


@pytest.mark.parametrize("status", [200, 204, 304, 404, 429, 500, 503])
def test_on_every_answer_of_the_view(site: Site, status: int) -> None:
    """B062: whatever the view answers, its caller sees what is left; Retry-After is not added."""
    given = ask(site, f"/api.v2?status={status}")
    assert given.status_code == status
    assert shown(given)["api-v2-key"]["r"] == 2
    assert "Retry-After" not in given.headers
    assert "Cache-Control" not in given.headers


def test_a_crash_shows_it_too(site: Site) -> None:
    """A view that raises has been counted, and its 500 says so."""
    site.app.testing = False
    assert shown(ask(site, "/api.v2?status=x")) == shown(
        ask(site, "/api.v2", "k-2", client="192.0.2.1")
    )


def test_a_refusal(site: Site, clock: Clock) -> None:
    """A100: 429 with r=0 and t of the limit that refuses, Retry-After no earlier, no-store."""
    for _ in range(3):
        ask(site, "/api.v2")
        clock.advance(2_000)
    given = ask(site, "/api.v2")
    assert given.status_code == 429
    assert given.headers["Cache-Control"] == "no-store"
    assert given.headers["Retry-After"] == "54"
    assert shown(given) == {
        "api-v2-key": {"q": 3, "w": 60, "r": 0, "t": 54},
        "api-v2-client": {"q": 20, "w": 2, "r": 20, "t": 0},
    }
    assert given.json == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "Too many attempts. Wait before trying again.",
        "violated-policies": ["api-v2-key"],
        "retry_after": 54,
    }


def test_no_t_goes_beyond_retry_after(site: Site) -> None:
    """A100: limits that don't refuse say no more than is true until the client may come back."""
    ask(site, "/both?cost=1", "k-1")
    for _ in range(3):
        given = ask(site, "/both")
    assert given.status_code == 429
    assert shown(given)["api-v2-key"] == {"q": 3, "w": 60, "r": 0, "t": 60}
    day = ask(site, "/quota", "k-2")
    assert shown(day)["quota-day"]["t"] > 60
    mixed = [ask(site, "/both", "k-2", client="192.0.2.2") for _ in range(4)][-1]
    assert mixed.status_code == 429
    assert all(each["t"] <= 60 for each in shown(mixed).values())


def test_a_refusal_by_what_is_everybodys(site: Site) -> None:
    """A60: where a global limit refuses, the answer names the action and shows no quota."""
    given = [ask(site, "/open", None) for _ in range(3)][-1]
    assert (given.status_code, given.json["violated-policies"]) == (429, ["open"])
    assert WHOLE_SECONDS.fullmatch(given.headers["Retry-After"])
    assert shown(given) == {}


def test_several_limits_are_one_field(site: Site) -> None:
    """B064: stacked limits stand in one field of each name, the outermost first."""
    given = ask(site, "/both")
    assert list(shown(given)) == ["api-v2-key", "api-v2-client", "quota-day"]


def test_a_limit_reached_twice_is_one_item(site_factory: Callable[..., Site]) -> None:
    """B064: the same action and key twice in one request is one item."""
    site = site_factory(AUTHGUARD_POLICY=API)
    limit = site.auth.limit("quota", by=lambda: "k-1")
    site.app.add_url_rule("/twice", "twice", limit(limit(answer)))
    assert ask(site, "/twice").headers["RateLimit-Policy"] == '"quota-day";q=10;w=86400'


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("/send", {"q": 1, "w": 60, "r": 0, "t": 60}),
        ("/turn", {"q": 10, "w": 1, "r": 9, "t": 1}),
        ("/burst", {"q": 5, "w": 3, "r": 4, "t": 1}),
        ("/quota?cost=4", {"q": 10, "w": 86_400, "r": 6, "t": 57_600}),
        ("/one", {"q": 4, "w": 1, "r": 3, "t": 1}),
    ],
)
def test_each_algorithm(site: Site, path: str, first: dict[str, int]) -> None:
    """Each algorithm shows its quota, a cooldown one of one; a window is never below a second."""
    assert list(shown(ask(site, path)).values()) == [first]


def test_a_cooldown_that_refuses(site: Site, clock: Clock) -> None:
    """Threats, section 5: q=1, r=0, t and Retry-After are the wait that is left."""
    ask(site, "/send")
    clock.advance(60_000)
    ask(site, "/send")
    clock.advance(83_000)
    given = ask(site, "/send")
    assert given.headers["RateLimit-Policy"] == '"send-cooldown";q=1;w=60'
    assert given.headers["RateLimit"] == '"send-cooldown";r=0;t=37'
    assert given.headers["Retry-After"] == "37"


def test_no_key_has_no_tier(site: Site) -> None:
    """A request without a key is of no tier, whatever the function says, and is shown as much."""
    alone = shown(ask(site, "/api.v2?tier=pro", None))
    assert alone == {"api-v2-client": {"q": 20, "w": 2, "r": 19, "t": 2}}
    assert shown(ask(site, "/api.v2?tier=pro"))["api-v2-client"]["q"] == 40


def test_a_tier_shows_its_own_numbers(site: Site) -> None:
    """A tier's limit and window are what is shown."""
    assert shown(ask(site, "/api.v2?tier=pro"))["api-v2-key"] == {"q": 9, "w": 60, "r": 8, "t": 60}
    assert shown(ask(site, "/burst?tier=pro"))["burst-b"] == {"q": 9, "w": 90, "r": 8, "t": 10}


def test_overrides_and_exemptions(site: Site) -> None:
    """An override shows its number and window; an exemption nothing."""
    site.guard.override("burst", "b", account="k-1", to="1/10s", for_ms=60_000)
    assert shown(ask(site, "/burst"))["burst-b"] == {"q": 5, "w": 50, "r": 4, "t": 10}
    site.guard.override("api.v2", "key", account="k-1", to="50/1m", for_ms=60_000)
    given = shown(ask(site, "/api.v2"))
    assert given["api-v2-key"] == {"q": 50, "w": 60, "r": 49, "t": 60}
    site.guard.override("api.v2", "key", account="k-1", to=None, for_ms=60_000)
    assert list(shown(ask(site, "/api.v2"))) == ["api-v2-client"]


def test_what_the_load_has_taken_away_is_not_shown(site: Site) -> None:
    """A 429 while there is no capacity names the limit that the client has used up, alone."""
    assert list(shown(ask(site, "/shed"))) == ["shed-key", "shed-client"]
    site.guard.load(0)
    given = ask(site, "/shed")
    assert (given.status_code, given.json["violated-policies"]) == (429, ["shed-client"])
    assert list(shown(given)) == ["shed-client"]
    site.guard.load(1)
    assert list(shown(ask(site, "/shed"))) == ["shed-key", "shed-client"]


def test_remaining_never_falls_below_zero(site: Site) -> None:
    """B066: a limit lowered below what is used has nothing left, and refuses."""
    for _ in range(8):
        ask(site, "/api.v2?tier=pro")
    given = ask(site, "/api.v2")
    assert (given.status_code, shown(given)["api-v2-key"]["r"]) == (429, 0)
    site.guard.override("api.v2", "key", account="k-1", to="5/60s", for_ms=60_000)
    given = ask(site, "/api.v2")
    assert (given.status_code, shown(given)["api-v2-key"]["r"]) == (429, 0)


def test_hammering_a_short_window(x_site: Site, clock: Clock) -> None:
    """B062: at every moment of half a minute's hammering each field is in its range."""
    for _ in range(300):
        given = ask(x_site, "/one")
        numbers = shown(given)["one-second"]
        assert numbers["t"] <= 1
        assert 0 <= int(given.headers["X-RateLimit-Remaining"]) <= 4
        assert int(given.headers["X-RateLimit-Reset"]) * 1000 >= clock.now_ms
        assert given.headers.get("Retry-After") == ("1" if given.status_code == 429 else None)
        clock.advance(97)


@pytest.mark.parametrize("path", ["/api.v2", "/send", "/turn", "/burst", "/quota", "/one", "/open"])
@pytest.mark.parametrize("kind", ["json", "page"])
def test_every_429_has_its_wait(site: Site, path: str, kind: str) -> None:
    """B063, B068: each algorithm's 429 has a wait in whole seconds, the body's own."""
    accept = {"Accept": "text/html" if kind == "page" else "*/*"}
    given = [ask(site, path, headers=accept) for _ in range(12)][-1]
    assert given.status_code == 429
    assert WHOLE_SECONDS.fullmatch(given.headers["Retry-After"])
    assert given.headers["Cache-Control"] == "no-store"
    if kind == "json":
        assert given.json["retry_after"] == int(given.headers["Retry-After"])
    else:
        assert f"{given.headers['Retry-After']} seconds" in given.text


def test_what_the_view_set_itself_stays(site: Site) -> None:
    """B064: on an answer of the app's own its fields are left alone, and stand once."""
    own = "own=1&RateLimit=%22mine%22%3Br%3D7%3Bt%3D1&Retry-After=7"
    given = ask(site, f"/api.v2?{own}&status=429")
    assert given.headers["RateLimit"] == '"mine";r=7;t=1'
    assert given.headers["Retry-After"] == "7"
    assert "api-v2-key" in given.headers["RateLimit-Policy"]


@pytest.mark.parametrize(("theirs", "sent"), [("5", "60"), ("900", "900"), ("soon", "60")])
def test_on_our_refusal_ours_stand(site: Site, theirs: str, sent: str) -> None:
    """B064, B067: in an app's own 429 page our fields stand once, with the longer wait."""
    fields = {
        "Retry-After": theirs,
        "RateLimit": '"mine";r=7;t=1',
        "RateLimit-Policy": '"mine";q=9',
    }
    site.app.register_error_handler(429, lambda _: (jsonify(mine=True), 429, fields))
    given = [ask(site, "/api.v2") for _ in range(4)][-1]
    assert given.json == {"mine": True}
    assert given.headers["Retry-After"] == sent
    assert list(shown(given)) == ["api-v2-key", "api-v2-client"]


def test_a_refused_sign_in_of_a_limited_view(site: Site) -> None:
    """Where protect() refuses below a limit, one field holds the limit's item and the constant."""
    door = [ask(site, "/door", method="POST", data={"name": "vera"}) for _ in range(6)]
    assert [given.status_code for given in door] == [401] * 5 + [429]
    assert list(shown(door[0])) == ["quota-day"]
    assert list(shown(door[5])) == ["quota-day", "login"]
    assert shown(door[5])["login"] == {"q": 20, "w": 300, "r": 0, "t": 900}


def test_auth_routes_stay_as_they_are(site: Site) -> None:
    """A60: a sign-in that fails shows nothing; a refused one shows the constant."""
    failed = site.login()
    assert not [name for name, _ in failed.headers if "RateLimit" in name]
    site.statuses(4)
    before = site.login()
    assert before.headers["RateLimit-Policy"] == '"login";q=20;w=300'
    assert before.headers["RateLimit"] == '"login";r=0;t=900'
    assert not [name for name, _ in before.headers if name.startswith("X-RateLimit")]


def test_an_apps_own_page_for_an_auth_route_stays_bare(site: Site) -> None:
    """A60: what an app's handler answers for an auth route gets the wait, and no quota."""
    site.app.register_error_handler(429, lambda _: ("wait", 429))
    site.statuses(5)
    ours = site.login()
    assert (ours.status_code, ours.text) == (429, "wait")
    assert ours.headers.getlist("Retry-After") == ["900"]
    assert not [name for name, _ in ours.headers if "RateLimit" in name]


def test_the_older_fields_are_off_by_default(site: Site) -> None:
    """Without the switch no X-RateLimit field is sent, admitted or refused."""
    for _ in range(4):
        given = ask(site, "/api.v2")
        assert not [name for name, _ in given.headers if name.startswith("X-RateLimit")]


def test_the_older_fields_know_the_scarcest_limit(x_site: Site, clock: Clock) -> None:
    """X-RateLimit: the limit with the least left, and when it is whole again in Unix seconds."""
    now_s = clock.now_ms // 1000
    clock.advance(1)
    given = ask(x_site, "/api.v2")
    assert [given.headers[name] for name in X_FIELDS] == ["3", "2", str(now_s + 61)]
    for _ in range(3):
        given = ask(x_site, "/api.v2")
    assert given.status_code == 429
    assert [given.headers[name] for name in X_FIELDS] == ["3", "0", str(now_s + 61)]
    assert given.headers["Retry-After"] == "60"
    given = ask(x_site, "/api.v2", None, client="192.0.2.1")
    assert [given.headers[name] for name in X_FIELDS] == ["20", "19", str(now_s + 3)]


def test_the_older_fields_of_a_view_stay(x_site: Site) -> None:
    """B064: an X-RateLimit field that the view has set stands as it is, once."""
    given = ask(x_site, "/api.v2?own=1&X-RateLimit-Limit=77")
    assert given.headers["X-RateLimit-Limit"] == "77"


def test_the_older_fields_tell_nothing_of_an_account(x_site: Site, clock: Clock) -> None:
    """A60: on auth routes they come with refusals alone, and are alike for locked and unknown."""
    assert not [name for name, _ in x_site.login("omar").headers if name.startswith("X-RateLimit")]
    x_site.statuses(5)
    seen = []
    for who in ("vera", "nobody"):
        given = [x_site.login(who, client=f"192.0.2.{number}") for number in range(6)][-1]
        assert given.status_code == 429
        seen.append([given.headers[name] for name in X_FIELDS])
    assert seen == [["20", "0", str(clock.now_ms // 1000 + 900)]] * 2


def test_a_switch_is_a_switch(site: Site) -> None:
    """AG005, AG029: what is neither true nor false, or would count for nothing, is refused."""
    with pytest.raises(ConfigurationError, match="AG005"):
        AuthGuard(x_ratelimit="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="AG029"):
        AuthGuard(site.app, x_ratelimit=True)
