"""What one run of the demo is made of, handed from the command to the web workers."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from dataclasses import asdict, dataclass, field
from typing import Final, Self

#: The workers read the settings here: they are processes of their own, started by gunicorn.
VARIABLE: Final = "DEMO_APP_SETTINGS"

#: What makes the app from them, in the notation of gunicorn and of the flask command.
FACTORY: Final = "demo_app.app:from_environment()"


def _random_secret() -> str:
    return secrets.token_hex(32)


@dataclass(frozen=True, slots=True)
class Settings:
    """
    One run of the demo.

    Attributes:
        store_url: The Valkey that decides.
        database: The SQLite file with the accounts.
        policy: A policy file, or None for the package's default profile.
        trusted_proxies: Networks (CIDR) whose forwarding header is believed.
        deadline_ms: A decision's deadline.
        workers: Web worker processes; the CPUs for password hashes are divided among them.
        base_url: Where people reach the demo; links in messages begin with it.
        session_secret: Signs the session cookie; fresh for each run.
        guard_secret: Keys the pseudonyms in the store; fresh for each run.
    """

    store_url: str = field(repr=False)  # may hold a password
    database: str
    policy: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    deadline_ms: int = 500
    workers: int = 1
    base_url: str = "http://127.0.0.1:5000"
    session_secret: str = field(default_factory=_random_secret, repr=False)
    guard_secret: str = field(default_factory=_random_secret, repr=False)

    @property
    def hash_slots(self) -> int:
        """Password hashes one worker may compute at a time."""
        return max(1, len(os.sched_getaffinity(0)) // self.workers)

    def environment(self) -> dict[str, str]:
        """The environment of the workers: this one's, with these settings in it."""
        return {**os.environ, VARIABLE: self._as_text()}

    def shell_lines(self) -> str:
        """Lines for a shell, in which ``flask authguard …`` then speaks to this run."""
        return (
            "# Read it with a dot. It holds this run's secrets, and goes away with the run.\n"
            f"export {VARIABLE}={shlex.quote(self._as_text())}\n"
            f"export FLASK_APP={shlex.quote(FACTORY)}\n"
        )

    @classmethod
    def from_environment(cls) -> Self:
        """The settings that :meth:`environment` put there."""
        values = json.loads(os.environ[VARIABLE])
        return cls(**{**values, "trusted_proxies": tuple(values["trusted_proxies"])})

    def _as_text(self) -> str:
        return json.dumps(asdict(self))
