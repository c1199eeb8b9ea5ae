"""What one request has reserved so far, so that nothing is reserved twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from flask import g, request

if TYPE_CHECKING:
    from flask import Request

    from authguard.decision import Decision
    from authguard.flask.attempts import RequestAttempt
    from authguard.http import Quota

__all__ = ["Ledger", "ledger"]


@dataclass(slots=True)
class Ledger:
    """
    One request's attempts and refusal.

    Attributes:
        request: The request it belongs to.
        clientless: Nobody can tell the client, and the log says so already.
        attempts: By action, account and what else it counts by; no account is a request that names
            none of use.
        limits: What ``limit`` has counted, by action and key. Apart from the attempts: a view's
            ``current_attempt`` is never one of these.
        limit: What the limits said that were reached last.
        quotas: What the caller of a limited view is shown.
        advertised: What the refusal of an auth route shows.
        refused: authguard refuses the request.
        retry_after: The refusal's wait in whole seconds.
    """

    request: Request
    clientless: bool = False
    attempts: dict[tuple[object, ...], RequestAttempt] = field(default_factory=dict)
    limits: dict[tuple[str, str | None], RequestAttempt] = field(default_factory=dict)
    limit: Decision | None = None
    quotas: list[Quota] = field(default_factory=list)
    advertised: Quota | None = None
    refused: bool = False
    retry_after: int | None = None


def ledger() -> Ledger:
    """Return the running request's ledger."""
    running = cast("Request", request._get_current_object())  # type: ignore[attr-defined]  # noqa: SLF001 - werkzeug's documented way
    kept = g.get("_authguard_ledger")
    # ``g`` belongs to the app context, which outlives a request where somebody holds one open
    # (a test, a shell): an attempt reserved for another request must never be used again.
    if not isinstance(kept, Ledger) or kept.request is not running:
        kept = g._authguard_ledger = Ledger(running)  # noqa: SLF001 - our name in their drawer
    return kept
