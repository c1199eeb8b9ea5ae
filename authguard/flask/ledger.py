"""What one request has reserved so far, so that nothing is reserved twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from flask import g

from authguard.flask.state import current_request, current_state

if TYPE_CHECKING:
    from flask import Request
    from flask.ctx import _AppCtxGlobals

    from authguard.decision import Decision
    from authguard.errors import Denied
    from authguard.flask.attempts import RequestAttempt
    from authguard.flask.state import State
    from authguard.http import Quota

__all__ = ["Ledger", "kept_ledger", "ledger"]


#: Its place in ``g``.
_NAME: Final = "_authguard_ledger"


@dataclass(slots=True)
class Ledger:
    """
    One request's attempts and refusal.

    Attributes:
        request: The request it belongs to.
        state: Its app's.
        clientless: Nobody can tell the client, and the log says so already.
        attempts: By action, account and what else it counts by; no account is a request that names
            none of use.
        limits: What ``limit`` has counted, by action and key. Apart from the attempts: a view's
            ``current_attempt`` is never one of these.
        limit: What the limits said that were reached last.
        quotas: What the caller of a limited view is shown.
        sent: The fields of the refusal as authguard made it.
        denied: Why an auth route refuses.
        refused: authguard refuses the request.
        retry_after: The refusal's wait in whole seconds.
    """

    request: Request
    state: State
    clientless: bool = False
    attempts: dict[tuple[object, ...], RequestAttempt] = field(default_factory=dict)
    limits: dict[tuple[str, str | None], RequestAttempt] = field(default_factory=dict)
    limit: Decision | None = None
    quotas: list[Quota] = field(default_factory=list)
    sent: tuple[tuple[str, str], ...] | None = None
    denied: Denied | None = None
    refused: bool = False
    retry_after: int | None = None


def ledger() -> Ledger:
    """Return the running request's ledger."""
    drawer, running = _drawer(), current_request()
    kept = drawer.get(_NAME)
    if not isinstance(kept, Ledger) or kept.request is not running:
        kept = Ledger(running, current_state())
        setattr(drawer, _NAME, kept)
    return kept


def kept_ledger() -> Ledger | None:
    """Return the same, or None if nothing was written into one."""
    kept = _drawer().get(_NAME)
    return kept if isinstance(kept, Ledger) and kept.request is current_request() else None


def _drawer() -> _AppCtxGlobals:
    # ``g`` belongs to the app context, which outlives a request where somebody holds one open
    # (a test, a shell): an attempt reserved for another request must never be used again.
    return cast("Any", g)._get_current_object()  # type: ignore[no-any-return]  # noqa: SLF001 - werkzeug's documented way
