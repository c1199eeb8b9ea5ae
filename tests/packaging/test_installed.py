"""The installed package, used as a stranger would: nothing here reads the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import authguard
from authguard import Denied, Guard
from authguard.testing import embedded_valkey

SECRET = "a secret of the tests, 32 bytes or more"


def test_a_guess_too_many_is_refused() -> None:
    """Five guesses pass and the sixth is refused, by the Lua that came with the package."""
    with embedded_valkey() as server, Guard(server.url, secret=SECRET, deadline_ms=5_000) as guard:
        for _ in range(5):
            guard.attempt("login", account="vera", client="203.0.113.9")
        with pytest.raises(Denied) as denied:
            guard.attempt("login", account="vera", client="203.0.113.9")
    assert denied.value.decision.refused_by == ("pair",)


@pytest.mark.parametrize("heavy", ["flask", "valkey", "click", "rich"])
def test_the_front_door_stays_light(heavy: str) -> None:
    """`import authguard` brings in neither Flask nor a client library nor the command line."""
    code = f"import authguard, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_told_once() -> None:
    """The package's own version is the one it was installed under."""
    assert metadata.version("authguard") == authguard.__version__


@pytest.mark.skipif("AUTHGUARD_WHEEL_ONLY" not in os.environ, reason="for the built wheel")
def test_the_wheel_holds_the_lua_the_types_and_the_pages() -> None:
    """The wheel ships its Lua inside the package, its type marker, templates and static files."""
    package = Path(authguard.__file__).parent
    assert "site-packages" in str(package)
    assert {path.name for path in (package / "_lua").glob("*.lua")} >= {
        "acquire.lua",
        "settle.lua",
        "peek.lua",
        "clear.lua",
        "sliding_log.lua",
        "lock.lua",
        "open_limits.lua",
    }
    assert (package / "py.typed").is_file()
    assert list((package / "flask" / "templates").rglob("*.html"))
    assert list((package / "flask" / "static").rglob("*.css"))


@pytest.mark.skipif("AUTHGUARD_WHEEL_ONLY" not in os.environ, reason="for the built wheel")
def test_the_command_is_there() -> None:
    """`authguard --version` answers from the wheel."""
    command = Path(sys.executable).parent / "authguard"
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert authguard.__version__ in told.stdout
