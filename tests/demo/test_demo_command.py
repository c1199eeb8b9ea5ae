"""How the demo ends, what it says of wrong use, and the two make commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from demo_app.settings import VARIABLE, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Demo

ROOT = Path(__file__).parents[2]


def alive(pid: int) -> bool:
    """Whether a process still runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def fails(*flags: str) -> str:
    """Start the demo with flags it can't use; give its standard error."""
    result = subprocess.run(
        [sys.executable, "-m", "demo_app", "--port", "0", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2, result
    assert "ready" not in result.stdout
    assert "Traceback" not in result.stderr
    return result.stderr


class TestEnd:
    """How the demo ends."""

    @pytest.mark.parametrize(
        ("number", "group", "workers"),
        [
            (signal.SIGTERM, False, "1"),
            (signal.SIGTERM, False, "2"),
            (signal.SIGINT, False, "1"),
            (signal.SIGINT, True, "2"),
        ],
        ids=["term", "term-2-workers", "int", "ctrl-c-2-workers"],
    )
    def test_signal_ends_it_cleanly(
        self, start_demo: Callable[..., Demo], number: int, group: bool, workers: str
    ) -> None:
        """A signal ends it with status 0; no process, file or complaint is left behind."""
        demo = start_demo("--workers", workers)
        demo.visitor().get("/")
        family = demo.family()
        assert len(family) >= 4 + int(workers) - 1  # itself, Valkey, gunicorn and its workers
        assert demo.end(number, group=group) == 0
        assert not [pid for pid in family if alive(pid)]
        assert list(demo.temporary.iterdir()) == []
        demo.close()
        assert demo.errors == ""

    @pytest.mark.parametrize(
        ("number", "group"),
        [(signal.SIGINT, True), (signal.SIGTERM, False)],
        ids=["ctrl-c", "term"],
    )
    def test_signal_ends_it_under_make(
        self, start_demo: Callable[..., Demo], tmp_path: Path, number: int, group: bool
    ) -> None:
        """Both a Ctrl-C and a SIGTERM to ``make demo`` end everything that it started."""
        shutil.copy(ROOT / "Makefile", tmp_path)
        (tmp_path / "pyproject.toml").touch()
        python = tmp_path / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (tmp_path / ".venv/installed").touch()
        demo = start_demo(command=("make", "demo", "ARGS=--port 0"), cwd=tmp_path)
        family = demo.family()
        assert len(family) >= 5  # make itself, the demo, Valkey, gunicorn and its worker
        demo.end(number, group=group)
        assert not [pid for pid in family if alive(pid)]
        assert list(demo.temporary.iterdir()) == []

    @pytest.mark.slow
    def test_own_database_is_kept(self, start_demo: Callable[..., Demo], tmp_path: Path) -> None:
        """A database file of one's own outlives the run, and the next run takes it up."""
        database = tmp_path / "accounts.sqlite"
        for _ in range(2):
            demo = start_demo("--database", str(database))
            assert demo.visitor().login("vera", "correct horse vera").status == 200
            assert demo.end() == 0
            assert database.exists()


class TestWrongUse:
    """Flags that can't be used: one clear text, exit status 2, no traceback."""

    def test_unknown_flag(self) -> None:
        """An unknown flag is named."""
        assert "No such option" in fails("--frobnicate")

    def test_missing_policy(self) -> None:
        """A policy file that isn't there is named."""
        assert "'nowhere.toml' does not exist" in fails("--policy", "nowhere.toml")

    def test_bad_policy(self, tmp_path: Path) -> None:
        """A fault in a policy is told with its code and place, on one line."""
        policy = tmp_path / "policy.toml"
        policy.write_text('[login]\nlimits = [{ name = "a", by = ["account"], burst = 1 }]\n')
        assert re.fullmatch(r"demo_app: AG\d{3} .*login.*\n", fails("--policy", str(policy)))

    def test_bad_proxy(self) -> None:
        """A trusted proxy that is no network is named with its code."""
        assert re.fullmatch(
            r"demo_app: AG\d{3} .*'nonsense'.*\n", fails("--trusted-proxy", "nonsense")
        )

    def test_bad_store(self) -> None:
        """A Valkey address that can't be one is told with a code."""
        assert re.fullmatch(r"demo_app: AG\d{3} .*\n", fails("--valkey-url", "nonsense"))

    def test_bad_host(self) -> None:
        """An address that is none of this machine's is named."""
        assert re.fullmatch(
            r"demo_app: can't listen on 192\.0\.2\.1 .*\n", fails("--host", "192.0.2.1")
        )

    def test_bad_database(self, tmp_path: Path) -> None:
        """A database that can't be opened is named."""
        error = fails("--database", str(tmp_path / "nowhere/accounts.sqlite"))
        assert re.fullmatch(r"demo_app: can't use the database .*nowhere.*\n", error)

    def test_foreign_database(self, tmp_path: Path) -> None:
        """A file that holds somebody else's tables is named, and what to do."""
        database = tmp_path / "other.sqlite"
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("CREATE TABLE account (mine)")
        error = fails("--database", str(database))
        assert re.fullmatch(r"demo_app: can't use the database .*other.*; name a new file\n", error)

    def test_port_in_use(self) -> None:
        """A port that is taken is named."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            error = fails("--port", str(port))
        assert error == f"demo_app: can't listen on 127.0.0.1 port {port}: Address already in use\n"


def test_shell_file_says_what_the_run_is_made_of(tmp_path: Path) -> None:
    """A shell that has read the file starts programs with the very settings of the run."""
    settings = Settings(
        'valkey://:it\'s $HOME `id` "x"@127.0.0.1:1/0',
        "/a path/accounts.sqlite",
        trusted_proxies=("127.0.0.1/32",),
        base_url="http://127.0.0.1:1",
    )
    file = tmp_path / "operate.env"
    file.write_text(settings.shell_lines())
    ask = f'. "{file}"; env -0'
    shown = subprocess.run(["sh", "-c", ask], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in shown.split("\0") if line)
    assert variables["FLASK_APP"] == "demo_app.app:from_environment()"
    assert json.loads(variables[VARIABLE]) == json.loads(settings.environment()[VARIABLE])


class TestMakefile:
    """The two commands."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[..., list[str]]:
        """Ask make what it would do in a copy of the checkout's set-up."""
        shutil.copy(ROOT / "Makefile", tmp_path)
        project = tmp_path / "pyproject.toml"
        project.touch()

        def dry_run(*arguments: str, installed: str | None = None) -> list[str]:
            stamp = tmp_path / ".venv/installed"
            stamp.parent.mkdir(exist_ok=True)
            stamp.touch()
            offset = {"before": -100, "after": 100}[installed] if installed else 0
            changed = project.stat().st_mtime + offset
            os.utime(stamp, (changed, changed))
            return subprocess.run(
                ["make", "--no-print-directory", "--dry-run", *arguments],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()

        return dry_run

    def test_installs_nothing_twice(self, make: Callable[..., list[str]]) -> None:
        """When pyproject.toml hasn't changed, the demo is one line and passes its flags on."""
        lines = make("demo", "ARGS=--port 0", installed="after")
        assert lines == [".venv/bin/python -m demo_app --port 0"]

    def test_installs_when_the_project_changed(self, make: Callable[..., list[str]]) -> None:
        """When pyproject.toml has changed, the tests' environment is made anew first."""
        lines = make("test", installed="before")
        assert lines[0] == "python3 -m venv .venv"
        assert lines[1] == ".venv/bin/pip install -e '.[dev]'"
        assert lines[-1].strip() == ".venv/bin/python -m pytest"
