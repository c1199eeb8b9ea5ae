"""Commands sent to the server: for a failure, a success, a refusal that is known already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from authguard import Denied, Guard
from authguard.testing import embedded_valkey
from bench.figures import table
from bench.logins import SECRET, Numbers, plain, policy
from bench.race import work_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure", "report"]

TRIES = 100


def measure(*, quick: bool) -> dict[str, Any]:  # noqa: ARG001 (it is quick)
    """Count what the server reads from its sockets, with a guard as it comes."""
    with (
        embedded_valkey() as server,
        plain(server.url) as admin,
        Guard(server.url, secret=SECRET, policies=policy(Numbers()), deadline_ms=10_000) as guard,
    ):

        def attempt(account: str, client: str) -> Any:
            return guard.attempt("login", account=account, client=client)

        def succeed(number: int) -> None:
            attempt(f"right{number}", f"10.1.0.{number}").succeed()

        def refused(_: int) -> None:
            try:
                attempt("full", "10.2.0.1")
            except Denied:
                return
            raise RuntimeError("admitted, and the log is full")

        def count(once: Callable[[int], object]) -> float:
            before = work_of(admin).reads
            for number in range(TRIES):
                once(number)
            return (work_of(admin).reads - before - 1) / TRIES

        succeed(200)  # connect, load the scripts
        figures = {
            "failure": count(lambda number: attempt(f"wrong{number}", f"10.3.0.{number}")),
            "success": count(succeed),
        }
        for _ in range(Numbers().account):
            attempt("full", "10.2.0.1")
        refused(0)  # from now on it is known
        return figures | {"refusal known already": count(refused)}


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    table("Commands sent to the server, for each attempt", ("", "commands"), figures.items())
