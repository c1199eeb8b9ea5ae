"""limit(): every request of a view counts before it runs, and what is over the limit doesn't."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import tomllib
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flask import Blueprint, g, jsonify, request
from flask.views import MethodView

from authguard.errors import ConfigurationError, TooDear
from authguard.flask import AuthGuard, current_attempt, current_limit, signals
from tests.flask.conftest import HOME, POLICY

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask
    from werkzeug.test import TestResponse

    from authguard.flask import Refused
    from authguard.testing import EmbeddedValkey
    from tests.conftest import Clock
    from tests.flask.conftest import Site

#: An API of 3 a minute by key, 6 by client; other actions of one limit each.
API: dict[str, Any] = {
    **POLICY,
    "api": {
        "limits": [
            {
                "name": "key",
                "by": ["account"],
                "sliding_log": "3/60s",
                "tiers": {"pro": "5/60s"},
            },
            {"name": "client", "by": ["client"], "sliding_log": "6/60s"},
        ]
    },
    "export": {"limits": [{"name": "key", "by": ["account"], "fixed_window": "10/1h"}]},
    "paced": {"limits": [{"name": "turn", "by": ["account"], "leaky_bucket": "10/1s", "queue": 9}]},
    "open": {"limits": [{"name": "all", "by": ["global"], "sliding_log": "4/60s"}]},
    "lanes": {
        "limits": [
            {"name": "staff", "by": ["global"], "priority": "staff", "sliding_log": "50/60s"},
            {"name": "rest", "by": ["global"], "priority": "normal", "sliding_log": "1/60s"},
        ]
    },
    "staff": {
        "limits": [{"name": "lane", "by": ["client"], "priority": "staff", "sliding_log": "2/60s"}]
    },
    "spread": {
        "limits": [{"name": "keys", "by": ["client"], "distinct": "account", "limit": "2/60s"}]
    },
    "texts": {
        "limits": [{"name": "t", "by": ["client"], "channel": "sms", "sliding_log": "2/60s"}]
    },
    "locked": {
        "limits": [{"name": "key", "by": ["account"], "sliding_log": "2/60s", "lockout": "10m"}]
    },
}


@pytest.fixture
def api(site_factory: Callable[..., Site], clock: Clock) -> Site:
    """Give a site with those policies, whose requests bring their key in a header."""
    site = site_factory(clock=clock, AUTHGUARD_POLICY=API)

    @site.app.before_request
    def prove() -> None:
        g.api_key = request.headers.get("X-Api-Key")

    return site


def key() -> str | None:
    """Give the key that the request has proved."""
    found: str | None = g.api_key
    return found


def add(site: Site, view: Callable[..., Any], path: str = "/api", **how: Any) -> None:
    """Register a view under a name of its own."""
    site.app.add_url_rule(path, path.strip("/").replace("/", "."), view, **how)


def ask(
    site: Site, path: str = "/api", api_key: str | None = "k-1", client: str = HOME, **how: Any
) -> TestResponse:
    """Send one request with a key."""
    headers = how.pop("headers", {}) | ({} if api_key is None else {"X-Api-Key": api_key})
    return site.browser(client).open(path, headers=headers, **how)


def statuses(site: Site, times: int, *args: Any, **how: Any) -> list[int]:
    """Ask several times."""
    return [ask(site, *args, **how).status_code for _ in range(times)]


def test_requests_are_limited_by_key_and_by_client(api: Site, clock: Clock) -> None:
    """Three of a key in a minute reach the view, other keys go on, and the client's six end all."""
    calls: list[str] = []
    add(api, api.auth.limit("api", by=key)(lambda: calls.append(g.api_key) or "fine"))
    assert statuses(api, 5) == [200] * 3 + [429] * 2
    assert statuses(api, 5, api_key="k-2") == [200] * 3 + [429] * 2
    assert statuses(api, 1, api_key="k-3") == [429]
    assert statuses(api, 1, api_key="k-3", client="198.51.100.7") == [200]
    assert calls == ["k-1"] * 3 + ["k-2"] * 3 + ["k-3"]
    clock.advance(60_000)
    assert statuses(api, 4) == [200] * 3 + [429]


def test_retry_after_is_kept(api: Site, clock: Clock) -> None:
    """Refused until just before Retry-After has passed, admitted when it has."""
    add(api, api.auth.limit("api", by=key)(lambda: "fine"))
    statuses(api, 3)
    refusal = ask(api)
    assert refusal.headers["Retry-After"] == "60"
    clock.advance(59_999)
    assert ask(api).status_code == 429
    clock.advance(1)
    assert ask(api).status_code == 200


@pytest.mark.parametrize("outcome", ["fine", "missing", "crash"])
def test_every_outcome_counts(api: Site, outcome: str) -> None:
    """There is nothing to succeed: 200, the view's own 404 and a crash all take a place."""
    api.app.testing = False

    def view() -> Any:
        if outcome == "crash":
            raise ZeroDivisionError
        return outcome, 404 if outcome == "missing" else 200

    add(api, api.auth.limit("api", by=key)(view))
    status = {"fine": 200, "missing": 404, "crash": 500}[outcome]
    assert statuses(api, 4) == [status] * 3 + [429]


def test_keys_are_taken_as_they_are(api: Site) -> None:
    """API keys differ by letter case, and no normaliser makes two of them one."""
    add(api, api.auth.limit("api", by=key)(lambda: "fine"))
    for number, each in enumerate(("Key", "key", "KEY")):
        client = f"192.0.2.{number}"
        assert statuses(api, 4, api_key=each, client=client) == [200] * 3 + [429]


def test_no_key_counts_by_client(api: Site) -> None:
    """A request without a key draws on its client's budget alone."""
    add(api, api.auth.limit("api", by=key)(lambda: "fine"))
    assert statuses(api, 7, api_key=None) == [200] * 6 + [429]
    assert statuses(api, 1, client="198.51.100.7") == [200]


def test_no_key_where_nothing_else_counts_is_400(api: Site) -> None:
    """Where only the key is counted, a request without one doesn't get in uncounted."""
    calls: list[int] = []
    add(api, api.auth.limit("export", by=key)(lambda: calls.append(1) or "fine"))
    answer = ask(api, api_key=None)
    assert (answer.status_code, calls) == (400, [])
    assert answer.json is not None
    assert answer.json["detail"] == "key: is missing"


@pytest.mark.parametrize("unfit", ["x" * 300, " ", "a\u200bb"])
def test_an_unfit_key_is_400_and_costs_its_client(api: Site, unfit: str) -> None:
    """A key that no key can be is answered 400, and hammering with such is refused as well."""
    add(api, api.auth.limit("api", by=lambda: unfit)(lambda: "fine"))
    assert statuses(api, 7) == [400] * 6 + [429]
    assert "\u200b" not in ask(api, client="198.51.100.7").text


def test_a_key_that_is_no_text_is_the_apps_fault(api: Site) -> None:
    """AG026: a number as a key stops the request instead of counting something else."""
    add(api, api.auth.limit("api", by=lambda: 7)(lambda: "fine"))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match="AG026"):
        ask(api)


def test_without_by_the_client_counts(api: Site) -> None:
    """limit() without a key is a limit by client."""
    add(api, api.auth.limit("api")(lambda: "fine"))
    assert statuses(api, 7, api_key=None) == [200] * 6 + [429]


def test_cost(api: Site) -> None:
    """A cost takes that many places; a function reads it from the request."""
    view = api.auth.limit("export", by=key, cost=lambda: int(request.args.get("rows", "1")))
    add(api, view(lambda: str(current_limit.remaining)))
    add(api, api.auth.limit("export", by=key, cost=5)(lambda: "fine"), "/five")
    assert ask(api, "/api?rows=4").text == "6"
    assert ask(api, "/api?rows=7").status_code == 429
    assert ask(api, "/api?rows=6").text == "0"
    assert statuses(api, 3, "/five", "k-2") == [200, 200, 429]


def test_a_cost_that_nothing_admits(api: Site) -> None:
    """A request that asks for more than there ever is gets 400; a fixed one is the app's fault."""
    view = api.auth.limit("export", by=key, cost=lambda: int(request.args["rows"]))
    add(api, view(lambda: "fine"))
    add(api, api.auth.limit("export", by=key, cost=11)(lambda: "fine"), "/never")
    answer = ask(api, "/api?rows=11")
    assert (answer.status_code, "Retry-After" in answer.headers) == (400, False)
    assert ask(api, "/api?rows=10").status_code == 200
    with pytest.raises(TooDear, match="cost: 11"):
        ask(api, "/never")


def test_a_cost_of_thousands_of_digits(api: Site) -> None:
    """A number in a request's address is 400, however long, and ends no worker."""
    view = api.auth.limit("export", by=key, cost=lambda: int(request.args["rows"]) * 100)
    add(api, view(lambda: "fine"))
    for digits in (10, 4_000, 4_300):
        given = ask(api, "/api?rows=" + "9" * digits)
        assert (given.status_code, len(given.get_data()) < 500) == (400, True)


@pytest.mark.parametrize("cost", [0, -1, True, 1.0, "2", None])
def test_what_no_cost_can_be(api: Site, cost: Any) -> None:
    """AG055: what a cost function must not give is never taken for a free request."""
    add(api, api.auth.limit("export", by=key, cost=lambda: cost)(lambda: "fine"))
    with pytest.raises(ConfigurationError, match=r"AG055 limit\(cost=…\)"):
        ask(api)
    with pytest.raises(ConfigurationError, match=r"AG054 limit\(cost=…\)"):
        api.auth.limit("export", cost=cost)


def test_tiers(api: Site) -> None:
    """A tier, as text or as a function of the request, has its own numbers."""
    plans = {"k-2": "pro"}
    by_plan = api.auth.limit("api", by=key, tier=lambda: plans.get(g.api_key))
    add(api, by_plan(lambda: "fine"))
    add(api, api.auth.limit("api", by=key, tier="pro")(lambda: "fine"), "/pro")
    assert statuses(api, 4) == [200] * 3 + [429]
    assert statuses(api, 6, api_key="k-2", client="192.0.2.1") == [200] * 5 + [429]
    assert statuses(api, 6, "/pro", "k-3", "192.0.2.2") == [200] * 5 + [429]
    assert statuses(api, 7, "/pro", None, "192.0.2.3") == [200] * 6 + [429]


def test_priorities(api: Site) -> None:
    """What staff asks for runs in a lane of its own while ordinary requests are refused."""
    staff = api.auth.limit("lanes", priority=lambda: "staff" if g.api_key == "boss" else None)
    add(api, staff(lambda: "fine"))
    assert statuses(api, 3) == [200, 429, 429]
    assert statuses(api, 20, api_key="boss") == [200] * 20


def test_exempt_requests_never_reach_the_store(
    own_valkey: EmbeddedValkey, site_factory: Callable[..., Site]
) -> None:
    """What exempt() says True of is not counted, and served even while the store is away."""
    site = site_factory(
        AUTHGUARD_STORE_URL=own_valkey.url,
        AUTHGUARD_DEADLINE_MS=2_000,
        AUTHGUARD_POLICY=API,
        AUTHGUARD_REMEMBER_REFUSALS_MS=0,
    )
    exempt = site.auth.limit("open", exempt=lambda: "X-Internal" in request.headers)
    add(site, exempt(lambda: f"{current_limit.delay_ms} {current_limit.verdicts}"))
    internal = {"X-Internal": "1"}
    assert [ask(site, headers=internal).text for _ in range(9)] == ["0 ()"] * 9
    assert statuses(site, 5) == [200] * 4 + [429]
    kill(own_valkey)
    assert ask(site, headers=internal).status_code == 200
    assert ask(site).status_code == 503


@pytest.mark.parametrize("said", [None, 1, "no", [1]])
def test_nobody_is_exempt_by_accident(api: Site, said: Any) -> None:
    """AG055: exempt() must give True or False; anything else lets nothing through."""
    calls: list[int] = []
    add(api, api.auth.limit("open", exempt=lambda: said)(lambda: calls.append(1) or ""))
    with pytest.raises(ConfigurationError, match=r"AG055 limit\(exempt=…\)"):
        ask(api)
    assert calls == []


def test_once_a_request(api: Site) -> None:
    """The same action and key twice in one request take one place; another key takes its own."""
    limit = api.auth.limit("api", by=key)
    other = api.auth.limit("api", by=lambda: "all keys")
    add(api, limit(limit(api.auth.limit("api", by=key)(lambda: "fine"))))
    add(api, other(limit(lambda: "fine")), "/two")
    assert statuses(api, 4) == [200] * 3 + [429]
    guard = api.guard
    assert guard.peek("api", account="k-1", client="192.0.2.1").remaining == 0
    assert ask(api, "/two", "k-9", "192.0.2.9").status_code == 200
    assert guard.peek("api", account="all keys", client="192.0.2.1").remaining == 2
    assert guard.peek("api", account="k-9", client="192.0.2.1").remaining == 2


def test_an_open_context_counts_each_request(api: Site) -> None:
    """An app context held open over several requests doesn't make them share one place."""
    add(api, api.auth.limit("api", by=key)(lambda: "fine"))
    with api.app.app_context():
        assert statuses(api, 4) == [200] * 3 + [429]


def test_several_limits_each_decide(api: Site) -> None:
    """Stacked limits are actions of their own, the outermost asked first."""
    view = api.auth.limit("api", by=key)(api.auth.limit("export", by=key, cost=5)(lambda: "fine"))
    add(api, view)
    assert statuses(api, 3) == [200, 200, 429]
    assert statuses(api, 1) == [429]
    assert ask(api).json["violated-policies"] == ["api-key"]


def test_current_limit_is_the_last_decision(api: Site) -> None:
    """current_limit tells of the limit reached last; a view that has none is told so."""
    view = api.auth.limit("api", by=key)(
        api.auth.limit("export", by=key)(
            lambda: f"{current_limit.action} {current_limit.remaining}"
        )
    )
    add(api, view)
    add(api, lambda: str(current_limit.remaining), "/bare")
    assert [ask(api).text for _ in range(2)] == ["export 9", "export 8"]
    with pytest.raises(RuntimeError, match="counted for no limit"):
        ask(api, "/bare")


def test_a_leaky_bucket_tells_when_to_act(api: Site, clock: Clock) -> None:
    """current_limit.delay_ms paces a burst: a turn each 100 ms, and a full queue is refused."""
    add(api, api.auth.limit("paced", by=key)(lambda: str(current_limit.delay_ms)))
    turns = [ask(api).text for _ in range(10)]
    assert turns == [str(100 * turn) for turn in range(10)]
    assert ask(api).status_code == 429
    clock.advance(100)
    assert ask(api).text == "900"


def test_beside_protect(api: Site) -> None:
    """On a view with both, current_attempt is protect's, and its success gives no place back."""

    def door() -> str:
        current_attempt.succeed()
        return f"{current_attempt.action} {current_limit.action}"

    inside = api.auth.limit("api", by=key)(api.auth.protect("login", account="name")(door))
    outside = api.auth.protect("login", account="name")(api.auth.limit("api", by=key)(door))
    add(api, inside, "/inside", methods=["POST"])
    add(api, outside, "/outside", methods=["POST"])
    for number, path in enumerate(("/inside", "/outside")):
        answers = [
            ask(api, path, f"k-{number}", f"192.0.2.{number}", method="POST", data={"name": "vera"})
            for _ in range(4)
        ]
        assert [answer.status_code for answer in answers] == [200] * 3 + [429]
        assert answers[0].text == "login api"
    assert api.used() == 1  # of the one that limit refused inside protect


def test_a_limit_is_no_attempt(api: Site) -> None:
    """A limited view without protect has no current_attempt to succeed."""
    add(api, api.auth.limit("api", by=key)(lambda: current_attempt.succeed() or "in"))
    with pytest.raises(RuntimeError, match="reserved no attempt"):
        ask(api)


def test_blueprints_and_class_based_views(api: Site) -> None:
    """A blueprint's view and a MethodView take the decorator as any other, with one budget."""
    limit = api.auth.limit("api", by=key)
    inner = Blueprint("inner", __name__)
    inner.add_url_rule("/report", "report", limit(lambda: "fine"))
    api.app.register_blueprint(inner, url_prefix="/inner")

    class Report(MethodView):
        decorators = (limit,)

        def get(self, number: int) -> str:
            return f"got {number}"

        def post(self, number: int) -> str:
            return f"set {number}"

    api.app.add_url_rule("/report/<int:number>", view_func=Report.as_view("report"))
    assert ask(api, "/inner/report").text == "fine"
    assert ask(api, "/report/7").text == "got 7"
    assert ask(api, "/report/8", method="POST").text == "set 8"
    assert ask(api, "/inner/report").status_code == 429
    assert ask(api, "/report/7", method="OPTIONS").status_code == 200


def test_async_views(api: Site) -> None:
    """An async view is limited as any other."""
    api.app.async_to_sync = lambda view: (
        lambda *args, **kwargs: asyncio.run(  # type: ignore[method-assign]
            view(*args, **kwargs)
        )
    )

    async def report(number: int) -> str:
        await asyncio.sleep(0)
        return f"{number} {current_limit.remaining}"

    add(api, api.auth.limit("api", by=key)(report), "/report/<int:number>")
    assert [ask(api, "/report/7").text for _ in range(3)] == ["7 2", "7 1", "7 0"]
    assert ask(api, "/report/7").status_code == 429


def test_threads(
    site_factory: Callable[..., Site], volley: Callable[[int, Callable[[int], int]], list[int]]
) -> None:
    """Of 40 requests at the same moment under a limit of 20, exactly 20 reach the view."""
    limits = [{"name": "key", "by": ["account"], "sliding_log": "20/1h"}]
    site = site_factory(AUTHGUARD_POLICY={"api": {"limits": limits}})
    calls: list[int] = []
    add(site, site.auth.limit("api", by=lambda: "k-1")(lambda: calls.append(1) or "fine"))
    answers = volley(40, lambda _: site.browser().get("/api").status_code)
    assert sorted(answers) == [200] * 20 + [429] * 20
    assert len(calls) == 20


def test_unknown_action(bare_app: Flask, api: Site) -> None:
    """AG009: at once where init_app was called, else with it."""
    with pytest.raises(ConfigurationError, match="AG009"):
        api.auth.limit("nothing")
    late = AuthGuard()
    late.limit("nothing")
    with pytest.raises(ConfigurationError, match="AG009"):
        late.init_app(bare_app)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"by": "api_key"}, "AG054"),
        ({"exempt": True}, "AG054"),
        ({"tier": 7}, "AG054"),
        ({"priority": ["staff"]}, "AG054"),
        ({"tier": "gold"}, "AG054"),
        ({"priority": "boss"}, "AG054"),
        ({"cost": None}, "AG054"),
    ],
)
def test_wrong_arguments_stop_the_start(api: Site, arguments: dict[str, Any], code: str) -> None:
    """AG054: what limit() can't use is named where it is written, not in a request."""
    (name,) = arguments
    with pytest.raises(ConfigurationError, match=rf"{code} limit\({name}=…\)"):
        api.auth.limit("api", **arguments)


@pytest.mark.parametrize("name", ["by", "cost", "tier", "priority", "exempt"])
def test_async_functions_stop_the_start(api: Site, name: str) -> None:
    """AG054: a coroutine is true, so an async exempt() would exempt everybody."""

    async def give() -> None: ...

    arguments: dict[str, Any] = {name: give}
    with pytest.raises(ConfigurationError, match=rf"AG054 limit\({name}=…\): is async"):
        api.auth.limit("api", **arguments)


def test_a_limit_of_which_nothing_applies_stops_the_start(api: Site) -> None:
    """AG023: an action that counts by key alone, limited without one, would count nothing."""
    for action in ("export", "spread", "texts", "staff"):
        with pytest.raises(ConfigurationError, match=rf"AG023 \[{action}\]"):
            api.auth.limit(action)
    api.auth.limit("spread", by=key)
    api.auth.limit("lanes", priority="staff")
    api.auth.limit("lanes")


def test_no_lane_lets_a_request_in_uncounted(api: Site) -> None:
    """AG023: a request of a priority that no limit counts is stopped, and not let through."""
    calls: list[int] = []
    view = api.auth.limit("staff", priority=lambda: "staff" if g.api_key == "boss" else None)
    add(api, view(lambda: calls.append(1) or "fine"))
    assert statuses(api, 3, api_key="boss") == [200, 200, 429]
    with pytest.raises(ConfigurationError, match=r"AG023 \[staff\]"):
        ask(api)
    assert len(calls) == 2


def test_limit_above_the_route(api: Site) -> None:
    """AG022: a decorator in the wrong order, which would limit nothing, fails the first request."""

    @api.auth.limit("open")
    @api.app.get("/lost")
    def lost() -> str:
        return "in"

    with pytest.raises(ConfigurationError, match=r"AG022 endpoint 'lost'.*@guard\.limit"):
        ask(api, "/lost")


@pytest.mark.parametrize("lost", ["limit", "protect"])
def test_one_decorator_does_not_hide_the_other(api: Site, lost: str) -> None:
    """AG022: a limit in its place doesn't cover for a protect() that isn't, nor the other way."""
    both = {
        "limit": api.auth.limit("open"),
        "protect": api.auth.protect("login", account="name"),
    }
    above = both.pop(lost)
    (below,) = both.values()
    view = below(lambda: "in")
    add(api, view)

    @wraps(view)
    def audited() -> str:
        return view()

    above(audited)
    with pytest.raises(ConfigurationError, match=rf"AG022 endpoint 'api'.*@guard\.{lost}"):
        ask(api)


def test_one_limit_does_not_hide_another(api: Site) -> None:
    """AG022: of two limits on a view, the one that stands above the route is missed."""
    below = api.auth.limit("open")(lambda: "in")
    add(api, below)
    api.auth.limit("api")(below)
    with pytest.raises(ConfigurationError, match=r"AG022 endpoint 'api'.*@guard\.limit"):
        ask(api)


def test_a_view_under_two_routes_is_protected_on_both(api: Site) -> None:
    """AG022: a view that checks credentials on one route must not be merely limited on another."""

    def door() -> str:
        return "in"

    add(api, api.auth.protect("login", account="name")(door), "/in", methods=["POST"])
    add(api, api.auth.limit("open")(door), "/side")
    with pytest.raises(ConfigurationError, match="AG022"):
        ask(api, "/side")


def test_late_init_app(bare_app: Flask) -> None:
    """Views may be limited before init_app, as with any extension."""
    bare_app.config["AUTHGUARD_POLICY"] = API
    auth = AuthGuard()
    bare_app.add_url_rule("/api", "api", auth.limit("open")(lambda: "fine"))
    auth.init_app(bare_app)
    with bare_app.app_context():
        guard = auth.guard
    try:
        browser = bare_app.test_client()
        assert [browser.get("/api").status_code for _ in range(5)] == [200] * 4 + [429]
    finally:
        guard.close()


def test_signals_tell_of_refusals_and_locks(api: Site) -> None:
    """A limit that refuses or locks is told like an attempt's."""
    told: list[Any] = []

    def refused(_sender: object, *, action: str, decision: Any) -> None:
        told.append((action, decision.refused_by))

    def locked(_sender: object, *, action: str, limit: str, **_more: object) -> None:
        told.append((action, limit))

    add(api, api.auth.limit("locked", by=key)(lambda: "fine"))
    with signals.attempt_refused.connected_to(refused), signals.account_locked.connected_to(locked):
        assert statuses(api, 3) == [200, 200, 429]
    assert told == [("locked", "key"), ("locked", ("key",))]


def test_denylisted_client(site_factory: Callable[..., Site]) -> None:
    """A client on the denylist is 403 on limited views; an allowlisted one counts by key."""
    site = site_factory(
        AUTHGUARD_POLICY=API,
        AUTHGUARD_DENYLIST=["203.0.113.0/24"],
        AUTHGUARD_ALLOWLIST=["198.51.100.0/24"],
    )
    view = site.auth.limit("api", by=lambda: request.args.get("key"))(lambda: "fine")
    add(site, view)
    assert site.browser().get("/api?key=a").status_code == 403
    browser = site.browser("198.51.100.7")
    assert [browser.get("/api").status_code for _ in range(9)] == [200] * 9
    assert [browser.get("/api?key=a").status_code for _ in range(4)] == [200] * 3 + [429]


def kill(server: EmbeddedValkey) -> None:
    """Stop the server and wait until its port answers no more."""
    os.kill(server.pid, signal.SIGKILL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        except OSError:
            return


def test_store_away(own_valkey: EmbeddedValkey, site_factory: Callable[..., Site]) -> None:
    """B068: store away is 503 under deny, and under allow passes uncounted and shows nothing."""
    policy = API | {"free": API["open"] | {"outage": "allow"}}
    site = site_factory(
        AUTHGUARD_STORE_URL=own_valkey.url, AUTHGUARD_DEADLINE_MS=2_000, AUTHGUARD_POLICY=policy
    )
    by = {"by": lambda: "k-1"}
    add(site, site.auth.limit("api", **by)(lambda: "fine"))
    add(site, site.auth.limit("free")(lambda: str(current_limit.degraded)), "/free")
    assert [ask(site).status_code, ask(site, "/free").text] == [200, "False"]
    kill(own_valkey)
    away = ask(site)
    assert away.status_code == 503
    assert 5 <= int(away.headers["Retry-After"]) <= 10
    assert away.json["retry_after"] == int(away.headers["Retry-After"])
    passed = ask(site, "/free")
    assert (passed.status_code, passed.text) == (200, "True")
    for answer in (away, passed):
        assert not [name for name, _ in answer.headers if "RateLimit" in name]


def test_the_apps_own_answer(api: Site) -> None:
    """B067: an app's handler knows wait, limit and scope; the answer keeps the wait, once."""
    seen: list[Refused] = []

    @api.app.errorhandler(429)
    def handle(error: Refused) -> Any:
        seen.append(error)
        return jsonify(wait=error.retry_after), 429

    add(api, api.auth.limit("api", by=key)(lambda: "fine"))
    statuses(api, 3)
    answer = ask(api)
    assert answer.headers.getlist("Retry-After") == [str(seen[0].retry_after)]
    assert answer.json == {"wait": 60}
    assert (seen[0].decision.action, seen[0].decision.refused_by) == ("api", ("key",))
    assert len(answer.headers.getlist("RateLimit")) == 1


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/problem+json"),
        ("*/*", "application/problem+json"),
        ("application/json", "application/problem+json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
    ],
)
def test_json_unless_a_page_is_wanted(api: Site, accept: str | None, kind: str) -> None:
    """What calls an API takes anything and gets problem+json; a browser gets a page."""
    add(api, api.auth.limit("api", by=key)(lambda: "fine"))
    statuses(api, 3)
    answer = ask(api, headers={} if accept is None else {"Accept": accept})
    assert (answer.status_code, answer.mimetype) == (429, kind)
    answer = ask(api, json={}, headers={"Accept": "text/html"})
    assert answer.mimetype == "application/problem+json"


def test_the_page_works_as_printed(site_factory: Callable[..., Site]) -> None:
    """docs/api.md, run block by block: its policy, its view, and the fields it shows."""
    page = (Path(__file__).parents[2] / "docs/api.md").read_text(encoding="utf-8")
    (policy,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (fields,) = re.findall(r"```http\n(.*?)```", page, re.DOTALL)
    site = site_factory(AUTHGUARD_POLICY=tomllib.loads(policy))

    @site.app.before_request
    def prove() -> None:
        g.api_key, g.plan = request.headers.get("X-Api-Key"), request.headers.get("X-Plan")

    exec(compile(code, "api.md", "exec"), {"app": site.app, "guard": site.auth})
    answer = ask(site, "/api/report")
    assert answer.json == {"left": 99}
    assert f"RateLimit-Policy: {answer.headers['RateLimit-Policy']}\n" in fields
    assert re.sub("[rt]=[0-9]+", "", answer.headers["RateLimit"]) in re.sub(
        "[rt]=[0-9]+", "", fields
    )
    assert ask(site, "/api/report", "k-2", headers={"X-Plan": "pro"}).json == {"left": 298}
