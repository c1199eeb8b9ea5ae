"""What one request has reserved so far, so that nothing is reserved twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from flask import g, request

if TYPE_CHECKING:
    from flask import Request

    from authguard.flask.attempts import RequestAttempt

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
        refused: authguard refuses the request.
        retry_after: The refusal's wait in whole seconds.
    """

    request: Request
    clientless: bool = False
    attempts: dict[tuple[object, ...], RequestAttempt] = field(default_factory=dict)
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
