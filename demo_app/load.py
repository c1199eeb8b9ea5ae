"""The demo's load page, and a small API whose limits follow the load."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from flask import (
    Blueprint,
    abort,
    current_app,
    jsonify,
    redirect,
    render_template,
    request,
    url_for,
)

from authguard import AccountKey, StoreUnavailable, load_policies
from authguard.flask import current_limit
from authguard.flask.origin import is_cross_origin
from authguard.flask.session import signed_in_account

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flask import Flask
    from flask.typing import ResponseReturnValue

    from authguard import Policy
    from authguard.flask import AuthGuard
    from demo_app.accounts import DemoAccount, SqlAccounts

__all__ = ["add_load", "demo_policies"]

load_pages = Blueprint("load", __name__)

#: The limits of ``/api/work``. Ordinary requests share a lane that follows the load; what operators
#: need to mend things is kept for them in a lane of their own, which nothing narrows.
_API: Final = {
    "api": {
        "limits": [
            {
                "name": "account",
                "by": ["account"],
                "sliding_log": "100/1m",
                "tiers": {"staff": "1000/1m"},
            },
            {"name": "client", "by": ["client"], "sliding_log": "2000/1m"},
            {
                "name": "ordinary",
                "by": ["global"],
                "priority": "normal",
                "elastic": True,
                "token_bucket": "50/1s",
                "burst": 50,
            },
            {
                "name": "operators",
                "by": ["global"],
                "priority": "operator",
                "token_bucket": "50/1s",
                "burst": 100,
            },
        ]
    }
}

#: The demo's one administrator.
_ADMINISTRATOR: Final = "vera"
_NORMAL: Final = "normal"
_OPERATOR: Final = "operator"
_STAFF: Final = "staff"

#: Requests that the button sends.
FIRED: Final = 30


@dataclass(frozen=True, slots=True)
class _Choice:
    """A load that the page offers: its name in the form, the share, and how long it holds."""

    name: str
    label: str
    share: float
    for_s: int


_CHOICES: Final = (
    _Choice("whole", "1: all", 1, 600),
    _Choice("half", "0.5: half", 0.5, 600),
    _Choice("fifth", "0.2: a fifth", 0.2, 600),
    _Choice("none", "0: nothing", 0, 600),
    _Choice("database-down", "Database down", 0.2, 60),
)


@dataclass(frozen=True, slots=True)
class Lane:
    """
    How a limit of the API stands.

    Attributes:
        name: Its name in the policy.
        whole: How many it admits at once when all is well; of this person, by tier.
        limit: How many it does now.
        left: Places that are left.
    """

    name: str
    whole: int
    limit: int
    left: int


@dataclass(frozen=True, slots=True)
class Standing:
    """
    The load and the limits of whoever looks.

    Attributes:
        share: The share of elastic limits that applies.
        ends_ms: When that ends, in milliseconds since the epoch; None where it is 1.
        now_ms: When this was so.
        lanes: The limits.
    """

    share: float
    ends_ms: int | None
    now_ms: int
    lanes: tuple[Lane, ...]

    @property
    def left_s(self) -> int | None:
        """Whole seconds until it ends."""
        return None if self.ends_ms is None else -(-(self.ends_ms - self.now_ms) // 1000)

    @property
    def ends(self) -> str | None:
        """When it ends, in UTC."""
        if self.ends_ms is None:
            return None
        return f"{datetime.fromtimestamp(self.ends_ms / 1000, UTC):%H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class _Load:
    """What the page needs of one app; kept in its ``extensions``."""

    guard: AuthGuard
    accounts: SqlAccounts


def demo_policies(path: str | None) -> Mapping[str, Policy]:
    """
    Read the policies of a run: the file's over the package's, and the API's where it has none.

    Args:
        path: The policy file, or None for the package's profile.

    Raises:
        ConfigurationError: The file is wrong; the message names the mend.
    """
    return {**load_policies(_API), **load_policies(path)}


def add_load(app: Flask, guard: AuthGuard, accounts: SqlAccounts) -> None:
    """
    Put the page and the API into the app.

    Args:
        app: The demo's app.
        guard: What limits it.
        accounts: Who can be signed in.
    """
    app.extensions[load_pages.name] = _Load(guard, accounts)
    app.register_blueprint(load_pages)
    limit = guard.limit("api", by=_key, tier=_tier, priority=_priority)
    app.add_url_rule("/api/work", view_func=limit(work), methods=["GET"])


def work() -> ResponseReturnValue:
    """Stand for something that costs: an answer, and what is left of the limits."""
    account = _signed_in()
    return jsonify(
        status="done",
        username=account and account.username,
        priority=_priority() or _NORMAL,
        remaining=current_limit.remaining,
    )


@load_pages.get("/load")
def page() -> ResponseReturnValue:
    """Show the load, what follows from it, and what to try."""
    return _page()


@load_pages.post("/load")
def set_load() -> ResponseReturnValue:
    """Set the load."""
    _same_origin()
    chosen = next((each for each in _CHOICES if each.name == request.form.get("load")), None)
    if chosen is None:
        abort(400)
    try:
        _load().guard.guard.load(chosen.share, for_ms=chosen.for_s * 1000)
    except StoreUnavailable:
        return _page(), 503
    return redirect(url_for("load.page"), 303)


@load_pages.get("/load/fire")
def fired() -> ResponseReturnValue:
    """Lead back whoever loads the answers' page again."""
    return redirect(url_for("load.page"), 303)


@load_pages.post("/load/fire")
def fire() -> ResponseReturnValue:
    """Send the requests that the page's script sends, for browsers without it."""
    _same_origin()
    app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's documented way
    # As the person's browser would send them: same cookies, same address.
    fields = [field for field in request.headers if field[0] in ("Cookie", "X-Forwarded-For")]
    peer = {"REMOTE_ADDR": request.remote_addr or ""}

    def ask() -> list[int]:
        client = app.test_client(use_cookies=False)
        return [
            client.get("/api/work", headers=fields, environ_base=peer).status_code
            for _ in range(FIRED)
        ]

    # In a thread of its own: this request's context is not theirs.
    with ThreadPoolExecutor(1) as pool:
        return _page(answers=Counter(pool.submit(ask).result()))


def _page(answers: Mapping[int, int] | None = None) -> str:
    account = _signed_in()
    return render_template(
        "demo/load.html",
        choices=_CHOICES,
        standing=_standing(),
        username=account and account.username,
        administrator=_ADMINISTRATOR,
        answers=answers,
        fired=FIRED,
    )


def _standing() -> Standing | None:
    """Look at the load and the limits; None if Valkey gives no answer."""
    guard = _load().guard
    account, tier = _signed_in(), _tier()
    policy = guard.guard.policy("api")
    try:
        share, ends_ms = guard.guard.current_load(), guard.guard.load_until_ms()
        now_ms = guard.guard.now_ms()
        verdicts = [
            verdict
            for priority in (None, *sorted(policy.priorities - {_NORMAL}))
            for verdict in guard.guard.peek(
                "api",
                account=None if account is None else AccountKey.of_app(account.key),
                client=guard.client_address(),
                tier=tier,
                priority=priority,
            ).verdicts
        ]
    except StoreUnavailable:
        return None
    lanes = {}
    for verdict in verdicts:
        limit = policy.by_name.get(verdict.name)
        if limit is not None:  # an operator's block is no limit
            whole = limit.tiers.get(tier or "", limit.algorithm).limit
            lanes[limit.name] = Lane(limit.name, whole, verdict.limit, verdict.remaining)
    return Standing(share, None if share == 1 else ends_ms, now_ms, tuple(lanes.values()))


def _signed_in() -> DemoAccount | None:
    return cast("DemoAccount | None", signed_in_account(_load().accounts))


def _key() -> str | None:
    account = _signed_in()
    return None if account is None else account.key


def _is_administrator() -> bool:
    # By what the session proves, never by a name that somebody gives.
    account = _signed_in()
    return account is not None and account.username == _ADMINISTRATOR


def _priority() -> str | None:
    known = _load().guard.guard.policy("api").priorities
    return _OPERATOR if _is_administrator() and _OPERATOR in known else None


def _tier() -> str | None:
    known = _load().guard.guard.policy("api").tiers
    return _STAFF if _is_administrator() and _STAFF in known else None


def _same_origin() -> None:
    if is_cross_origin(request):
        abort(403)


def _load() -> _Load:
    return cast("_Load", current_app.extensions[load_pages.name])
