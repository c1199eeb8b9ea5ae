"""An operator's terminal: the commands in this process, on the session's store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from authguard.cli import commands
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from authguard import Guard

#: Every kind of place an operator can be asked about.
POLICY = """
[login]
limits = [
  { name = "pair", by = ["account", "client"], sliding_log = "5/1h" },
  { name = "account", by = ["account"], sliding_log = "5/1h", lockout = ["2h", "4h"] },
  { name = "day", by = ["account"], sliding_log = "9/24h" },
  { name = "client", by = ["client"], sliding_log = "20/1h" },
  { name = "network", by = ["network"], sliding_log = "40/1h" },
  { name = "spray", by = ["client"], distinct = "account", limit = "20/1h" },
]

[otp.verify]
limits = [
  { name = "account", by = ["account"], sliding_log = "3/1h", lockout = "1h" },
  { name = "client", by = ["client"], sliding_log = "20/1h" },
]
"""
CLIENT = "203.0.113.9"
OTHER = "198.51.100.7"


class Terminal:
    """Runs ``authguard`` with the tests' store, secret and policy file."""

    def __init__(self, url: str, policy: Path) -> None:
        self.env = {"AUTHGUARD_STORE_URL": url, "AUTHGUARD_SECRET": SECRET.replace(" ", "-")}
        self._policy = policy

    def run(self, command: str, *arguments: str, **env: str | None) -> Result:
        """Run a command."""
        arguments = (command, "--policy", str(self._policy), *arguments)
        return CliRunner().invoke(commands, arguments, env={**self.env, **env})

    def told(self, command: str, *arguments: str, **env: str | None) -> dict[str, Any]:
        """Run a command that must end with status 0, and give its JSON."""
        result = self.run(command, "--json", *arguments, **env)
        assert result.exit_code == 0, result.stderr
        told: dict[str, Any] = json.loads(result.stdout)
        return told


@pytest.fixture
def terminal(valkey_url: str, tmp_path: Path) -> Terminal:
    """Give a terminal on an emptied store."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    return Terminal(valkey_url, policy)


@pytest.fixture
def guard(terminal: Terminal, tmp_path: Path, guard_factory: Callable[..., Guard]) -> Guard:
    """Give the guard of an app beside the terminal."""
    secret = terminal.env["AUTHGUARD_SECRET"]
    return guard_factory(policies=tmp_path / "policy.toml", secret=secret)


@pytest.fixture
def fail(guard: Guard) -> Callable[..., None]:
    """Give a way to fail at an action several times."""

    def fail(times: int, action: str = "login", account: str = "vera", client: str = OTHER) -> None:
        for _ in range(times):
            guard.attempt(action, account=account, client=client)

    return fail
