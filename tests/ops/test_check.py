"""What ``authguard check`` finds, on real servers set up well and badly."""

from __future__ import annotations

import json
import re
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import valkey
from click.testing import CliRunner
from flask import Flask

from authguard import Guard, StoreUnavailable
from authguard.cli import commands
from authguard.flask import AuthGuard
from authguard.ops.check import check, quotas
from authguard.ops.check.outages import mend_of
from authguard.policy_file import load_policies
from authguard.stores._failures import _MISTAKEN, _REASONS
from authguard.stores.memory import MemoryStore
from authguard.testing import embedded_valkey
from tests.conftest import PATIENT_MS, SECRET
from tests.ops.conftest import Terminal
from tests.stores.conftest import SANE_S, stopped
from tests.stores.test_persistence import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard.testing import EmbeddedValkey

#: A secret that looks drawn.
DRAWN: Final = "u3Rk0Zt9-vYw7QmXc5LbJ2hPdNsG8fAe"

KEPT: Final = {"appendonly": "yes", "appendfsync": "everysec"}

#: Every part is bounded, and nothing counts for a day.
SHORT: Final = """
[ACTION]
limits = [
  { name = "account", by = ["account"], sliding_log = "5/1h" },
  { name = "client", by = ["client"], sliding_log = "20/23h" },
]
"""
ACTIONS: Final = ("login", "otp.send", "otp.verify", "password.forgot", "password.reset", "unlock")


@pytest.fixture
def terminal_on(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Give a way to sit down at a terminal whose server has settings of its own."""
    servers: list[Any] = []

    def sit_down(policy: str | None = None, **config: Any) -> Terminal:
        servers.append(embedded_valkey(**config))
        file = tmp_path / "policy.toml"
        file.write_text(policy or "")
        terminal = Terminal(servers[-1].__enter__().url, file)
        terminal.env["AUTHGUARD_SECRET"] = DRAWN
        return terminal

    yield sit_down
    for server in servers:
        server.__exit__(None, None, None)


@contextmanager
def plain(terminal: Terminal) -> Iterator[valkey.Valkey]:
    """Give a plain client on a terminal's server."""
    with valkey.Valkey.from_url(terminal.env["AUTHGUARD_STORE_URL"], socket_timeout=10) as client:
        yield client
        client.connection_pool.disconnect()


def looked(terminal: Terminal, **env: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Run ``check --json``; give its exit status, and its findings by code."""
    result = terminal.run("check", "--json", **env)
    report = json.loads(result.stdout)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        assert (finding["mend"] is None) is (finding["level"] == "ok")
        found.setdefault(finding["code"], []).append(finding)
    levels = [finding["level"] for finding in report["findings"]]
    assert (report["warnings"], report["errors"]) == (
        levels.count("warning"),
        levels.count("error"),
    )
    assert report["ok"] is (set(levels) == {"ok"}) is (result.exit_code == 0)
    return result.exit_code, found


def until(done: Callable[[], object]) -> None:
    """Wait until something holds, for half a minute at most."""
    last = time.monotonic() + 30
    while not done():
        assert time.monotonic() < last
        time.sleep(0.02)


def refused(guard: Guard) -> bool:
    """Tell whether an attempt is refused for the store's sake."""
    try:
        guard.attempt("login", account="vera", client="192.0.2.7").succeed()
    except StoreUnavailable:
        return True
    return False


def test_a_server_that_keeps_what_it_counts_is_ok(terminal_on: Callable[..., Terminal]) -> None:
    """Status 0, with the server's name and version, and a word on each thing that was looked at."""
    terminal = terminal_on(**KEPT)
    status, found = looked(terminal)
    assert status == 0
    assert list(found) == [
        *("AG060", "AG061", "AG062", "AG063", "AG064"),
        *("AG066", "AG067", "AG068", "AG069", "AG070", "AG071", "AG073"),
    ]
    with plain(terminal) as client:
        told = client.info("server")
        name = f"Redis {told['redis_version']}"
        if "valkey_version" in told:
            name = f"Valkey {told['valkey_version']}"
        assert found["AG060"][0]["seen"] == f"{name} answers"
        assert "loses the last second at most" in found["AG062"][0]["seen"]
        client.config_set("appendfsync", "always")
        assert "loses nothing" in looked(terminal)[1]["AG062"][0]["seen"]
    result = terminal.run("check")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"AG060  ok  {name} answers\n")
    assert result.stdout.endswith("\nNothing to mend.\n")


def test_persistence_that_is_off_is_an_error_where_there_are_quotas(
    terminal_on: Callable[..., Terminal],
) -> None:
    """Status 3; the limits of a day or more are named by action, and the mend is told."""
    terminal = terminal_on()
    status, found = looked(terminal)
    (finding,) = found["AG061"]
    assert (status, finding["level"]) == (3, "error")
    assert "nothing is kept on disk" in finding["seen"]
    assert "login: account, day, month, client-day, device-worn; otp.send: day, " in finding["seen"]
    assert "CONFIG SET appendonly yes, then CONFIG REWRITE" in finding["mend"]
    told = terminal.run("check")
    assert (told.exit_code, told.stderr) == (3, "")
    assert "AG061  error  nothing is kept on disk" in told.stdout
    assert told.stdout.endswith("\n1 error.\n")
    assert all(len(line) <= 80 for line in told.stdout.splitlines())


@pytest.mark.slow
def test_the_mend_mends(terminal_on: Callable[..., Terminal]) -> None:
    """What the error says to type makes the next check one with status 0."""
    terminal = terminal_on()
    assert looked(terminal)[0] == 3
    with plain(terminal) as client:
        client.config_set("appendonly", "yes")
        client.config_rewrite()
    assert looked(terminal)[0] == 0


def test_without_quotas_nothing_need_be_kept(terminal_on: Callable[..., Terminal]) -> None:
    """No limit of a day or more: persistence that is off is told, and is ok."""
    policy = "".join(SHORT.replace("ACTION", action) for action in ACTIONS)
    status, found = looked(terminal_on(policy))
    assert status == 0
    assert found["AG061"][0]["seen"] == (
        "no limit counts for a day or more; locks, blocks and links end with the server"
    )
    assert "AG062" not in found


def test_a_quota_is_a_limit_of_a_day_or_more_whatever_its_algorithm() -> None:
    """24 h exactly is one and a minute less is none; so is what locks or waits for a day."""
    limits = [
        {"name": "a", "by": ["account"], "sliding_log": "5/24h"},
        {"name": "b", "by": ["client"], "sliding_log": "5/1439m"},
        {"name": "c", "by": ["global"], "fixed_window": "5/1d"},
        {"name": "d", "by": ["client"], "distinct": "account", "limit": "5/30d"},
        {"name": "e", "by": ["country"], "conversion": "1/5", "lockout": "24h"},
        {"name": "f", "by": ["account"], "cooldown": ["1d"]},
        {"name": "g", "by": ["account"], "cooldown": ["30s"]},
        {
            "name": "h",
            "by": ["account"],
            "token_bucket": "5/1h",
            "burst": 5,
            "tiers": {"pro": {"token_bucket": "1/1d", "burst": 1}},
        },
        {"name": "i", "by": ["account"], "fixed_window": "5/1mo"},
        {"name": "j", "by": ["account"], "token_bucket": "1/1d", "burst": 1},
        {"name": "k", "by": ["account"], "token_bucket": "5/1d", "burst": 4},
        {"name": "l", "by": ["account"], "sliding_log": "5/1h", "lockout": ["1h", "24h"]},
        {"name": "m", "by": ["account"], "cooldown": ["30s", "1d"]},
    ]
    named = quotas(load_policies({"mail": {"limits": limits}}))
    assert named["mail"] == ("a", "c", "d", "e", "f", "h", "i", "j", "l", "m")
    assert "unlock" not in named


def test_snapshots_alone_are_a_warning_with_what_a_crash_would_take(
    terminal_on: Callable[..., Terminal],
) -> None:
    """So many changes, in so long a time, since the last one; and of which limits."""
    terminal = terminal_on(save="3600 1000")
    with plain(terminal) as client:
        for key in range(3):
            client.set(f"k{key}", 1)
        status, found = looked(terminal)
        (finding,) = found["AG061"]
        assert (status, finding["level"]) == (3, "warning")
        assert finding["seen"].startswith(
            "snapshots alone (save 3600 1000): a crash loses all since the last one, now 3 changes"
        )
        assert " s, of login: account, day, month" in finding["seen"]
        client.save()
        assert "now 0 changes in " in looked(terminal)[1]["AG061"][0]["seen"]


def test_a_file_that_the_system_flushes_when_it_likes_is_a_warning(
    terminal_on: Callable[..., Terminal],
) -> None:
    """Appendfsync no: status 3 with the setting's name and its mend."""
    status, found = looked(terminal_on(appendonly="yes", appendfsync="no"))
    (finding,) = found["AG062"]
    assert (status, finding["level"]) == (3, "warning")
    assert finding["seen"].startswith("appendfsync no: a power cut takes ")
    assert "login: account, day" in finding["seen"]
    assert finding["mend"] == "CONFIG SET appendfsync everysec, then CONFIG REWRITE"


def test_eviction_is_a_warning_and_with_a_bound_an_error(
    terminal_on: Callable[..., Terminal],
) -> None:
    """A policy other than noeviction, by its name: in force as soon as maxmemory is set."""
    terminal = terminal_on(**KEPT, maxmemory_policy="volatile-lru")
    status, found = looked(terminal)
    assert (status, found["AG064"][0]["level"]) == (3, "warning")
    assert "volatile-lru: as soon as maxmemory is set" in found["AG064"][0]["seen"]
    with plain(terminal) as client:
        client.config_set("maxmemory", "1gb")
    status, found = looked(terminal)
    assert (status, found["AG064"][0]["level"]) == (3, "error")


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """The append-only file can't grow: attempts are refused, and check says why."""
    server = Server(tmp_path)
    server.start()
    try:
        with Guard(server.url, secret=DRAWN, deadline_ms=PATIENT_MS) as guard:
            assert check(guard).ok
            server.fill_disk()
            until(lambda: refused(guard))
            report = check(guard)
    finally:
        server.kill()
        server.client.close()
    disk, scripts = (finding for finding in report.findings if finding.level != "ok")
    assert (disk.code, disk.level) == ("AG063", "error")
    assert disk.seen == (
        "the append-only file can't be written: the server takes no writes, so every attempt is"
        " refused"
    )
    assert (scripts.code, scripts.level) == ("AG066", "error")
    assert scripts.seen.startswith("the server takes no writes now (MISCONF)")


def test_a_snapshot_that_failed_is_an_error_where_it_stops_writes(
    terminal_on: Callable[..., Terminal], tmp_path: Path
) -> None:
    """The folder is gone: an error while that stops all writes, a warning where it does not."""
    terminal = terminal_on(data_dir=tmp_path / "data", save="3600 1000")
    with plain(terminal) as client:
        shutil.rmtree(tmp_path / "data")
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        (finding,) = looked(terminal)[1]["AG063"]
        assert finding["level"] == "error"
        assert "the last snapshot failed: the server takes no writes" in finding["seen"]
        client.config_set("stop-writes-on-bgsave-error", "no")
        assert looked(terminal)[1]["AG063"][0]["level"] == "warning"
        client.config_set("save", "")
        assert looked(terminal)[1]["AG063"][0]["level"] == "ok"


def test_a_rewrite_that_failed_is_a_warning(
    terminal_on: Callable[..., Terminal], tmp_path: Path
) -> None:
    """The append-only file is still written, and grows."""
    terminal = terminal_on(**KEPT, data_dir=tmp_path / "data")
    with plain(terminal) as client:
        shutil.rmtree(tmp_path / "data")
        with suppress(valkey.ResponseError):  # it may say so at once
            client.bgrewriteaof()
        until(lambda: client.info("persistence")["aof_last_bgrewrite_status"] == "err")
    (finding,) = looked(terminal)[1]["AG063"]
    assert (finding["level"], finding["seen"][:32]) == (
        "warning",
        "the last rewrite of the append-o",
    )


@pytest.mark.parametrize(
    ("config", "refused", "codes", "words"),
    [
        (KEPT, ["config"], ["AG062"], "can't tell: the server refuses CONFIG GET appendfsync"),
        ({}, ["config|get"], ["AG061"], "no append-only file; can't tell whether"),
        (
            KEPT,
            ["info"],
            ["AG060", "AG061", "AG062", "AG063", "AG064", "AG069", "AG070", "AG071"],
            "can't tell: the server refuses INFO (no permission)",
        ),
    ],
)
def test_what_the_acl_hides_is_a_warning_with_the_commands_name(
    terminal_on: Callable[..., Terminal],
    config: dict[str, Any],
    refused: list[str],
    codes: list[str],
    words: str,
) -> None:
    """A user who may count but not look gets status 3, the command that is missing, no crash."""
    terminal = terminal_on(**config)
    url = terminal.env["AUTHGUARD_STORE_URL"].replace("//", "//counter:pw@")
    with plain(terminal) as client:
        client.acl_setuser(
            "counter",
            enabled=True,
            passwords=["+pw"],
            keys=["rl:*"],
            categories=["+@all"],
            commands=[f"-{command}" for command in refused],
        )
    status, found = looked(terminal, AUTHGUARD_STORE_URL=url)
    warned = [code for code in found if found[code][0]["level"] == "warning"]
    assert (status, warned) == (3, codes)
    assert found[codes[0]][0]["seen"].startswith(words)
    if "info" in refused:
        assert "(ACL +info)" in found["AG060"][0]["mend"]
        table = terminal.run("check", AUTHGUARD_STORE_URL=url).stdout
        assert table.count("refuses INFO") == 1
        assert "AG061  warning  as AG060\n" in table


def test_a_command_that_a_server_does_not_have_is_a_warning(
    terminal_on: Callable[..., Terminal],
) -> None:
    """A hosted server without CONFIG: what it would tell can't be told."""
    status, found = looked(terminal_on(**KEPT, rename_command="CONFIG ''"))
    assert (status, found["AG062"][0]["level"]) == (3, "warning")
    assert found["AG062"][0]["seen"] == (
        "can't tell: the server refuses CONFIG GET appendfsync (error reply)"
    )


class Told(MemoryStore):
    """A store of the app's own that answers as it is told to."""

    def __init__(self, **sections: str) -> None:
        super().__init__(lambda: 0)
        self.sections = sections

    def ask(self, *command: str) -> object:
        """Give a section as a server would, and know no other command."""
        if command[0] != "INFO":
            raise StoreUnavailable("error reply")
        return self.sections.get(command[1], "").encode()


def test_a_redis_is_called_so_and_what_it_does_not_tell_is_a_warning() -> None:
    """Fields that are missing or are no numbers are can't-tells, each with its name."""
    store = Told(
        server="# Server\r\nredis_version:7.2.4\r\n",
        persistence="# Persistence\r\nrole:\r\n",
        memory="maxmemory_policy:allkeys-lru\r\nmaxmemory:much\r\n",
    )
    seen = [finding.seen for finding in check(Guard(store, secret=DRAWN)).findings]
    assert seen == [
        "Redis 7.2.4 answers",
        *["can't tell: INFO persistence of this server doesn't tell aof_enabled"] * 3,
        "can't tell: INFO memory of this server doesn't tell maxmemory",
        "the server runs no script: it doesn't know EVAL, EVALSHA, so every attempt is refused",
        "can't tell: INFO memory of this server doesn't tell maxmemory",
        "can't tell: INFO clients of this server doesn't tell maxclients",
        "can't tell: INFO replication of this server doesn't tell role",
        "the secret looks drawn at random",
    ]


def test_a_store_that_can_not_be_asked_is_a_warning() -> None:
    """A MemoryStore has no server to look over: that is all that is said of it."""
    report = check(Guard(MemoryStore(lambda: 0), secret=DRAWN))
    finding, _ = report.findings
    assert (finding.code, finding.level, report.ok) == ("AG065", "warning", False)
    assert finding.seen.startswith("can't tell: a MemoryStore can't be looked over")


def test_what_the_policies_warn_of_is_found_too(terminal_on: Callable[..., Terminal]) -> None:
    """AG040 to AG042 with their action and a mend, though the store is as it should be."""
    policy = (
        '[login]\noutage = "allow"\n'
        'limits = [{ name = "pair", by = ["account", "client"], sliding_log = "5/15m" }]\n'
    )
    status, found = looked(terminal_on(policy, **KEPT))
    assert status == 3
    for code in ("AG040", "AG041", "AG042"):
        (finding,) = found[code]
        assert (finding["level"], finding["seen"][:7]) == ("warning", "login: ")
    assert found["AG042"][0]["mend"] == 'write outage = "deny"'


def test_json_names_the_quotas(terminal_on: Callable[..., Terminal]) -> None:
    """One object: the limits of a day or more by action, beside the findings."""
    result = terminal_on(**KEPT).run("check", "--json")
    report = json.loads(result.stdout)
    assert list(report) == ["ok", "warnings", "errors", "quotas", "findings"]
    assert report["quotas"]["otp.verify"] == ["day", "month", "client-day"]


def test_a_store_that_is_away_is_status_1(terminal_on: Callable[..., Terminal]) -> None:
    """One line with host, port and reason; nothing on standard output, and no password."""
    terminal = terminal_on()
    url = "valkey://someone:tell-nobody@127.0.0.1:1/0"
    for arguments in ((), ("--json",)):
        result = terminal.run("check", *arguments, AUTHGUARD_STORE_URL=url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(
            "Error: the store at 127.0.0.1:1 gave no clear answer (connection); see that it runs"
        )
        assert result.stderr.count("\n") == 1
        assert "tell-nobody" not in result.stderr


@pytest.mark.parametrize(
    ("address", "reason", "mend"),
    [
        ("valkey://{}/77", "no such database", "take another at the end of the store's address"),
        ("valkey+cluster://{}", "no cluster", "write valkey:// in the store's address"),
        ("valkey+sentinel://{}/main", "no sentinel", "name the sentinels' own ports"),
        ("valkeys://{}/0", "timeout|connection", "valkey:// is for a port without TLS"),
        ("valkey://nobody:tell-nobody@{}/0", "authentication", "see that user and password"),
    ],
)
def test_an_address_that_means_another_server_is_told_as_such(
    terminal_on: Callable[..., Terminal], address: str, reason: str, mend: str
) -> None:
    """Status 1, the reason, and what to write in the address: nothing else is suspected."""
    terminal = terminal_on()
    place = terminal.env["AUTHGUARD_STORE_URL"].removeprefix("valkey://").removesuffix("/0")
    result = terminal.run("check", AUTHGUARD_STORE_URL=address.format(place))
    assert (result.exit_code, result.stdout) == (1, "")
    said = rf"Error: the store at {re.escape(place)} gave no clear answer \(({reason})\); "
    assert re.match(said, result.stderr)
    assert mend in result.stderr
    assert result.stderr.count("\n") == 1
    assert "tell-nobody" not in result.stderr


def test_a_guard_with_a_clock_of_its_own_finds_the_store_away_too(
    own_valkey: EmbeddedValkey,
) -> None:
    """The server's own answers have the guard's deadline: hanging or gone, it is an outage."""
    with Guard(own_valkey.url, secret=SECRET, deadline_ms=300, clock=lambda: 0) as guard:
        begun = time.monotonic()
        with stopped(own_valkey), pytest.raises(StoreUnavailable) as caught:
            check(guard)
        assert caught.value.reason == "timeout"
        assert time.monotonic() - begun < SANE_S
    with Guard("valkey://127.0.0.1:1", secret=SECRET, clock=lambda: 0) as guard:
        with pytest.raises(StoreUnavailable) as caught:
            check(guard)
        assert caught.value.reason == "connection"


def test_a_store_that_can_not_decide_is_an_error(terminal_on: Callable[..., Terminal]) -> None:
    """A user who may ask for INFO and run no script: status 3, and both commands by name."""
    terminal = terminal_on(**KEPT)
    with plain(terminal) as client:
        client.acl_setuser(
            "looker", enabled=True, passwords=["+pw"], categories=["+@all", "-@scripting"]
        )
    url = terminal.env["AUTHGUARD_STORE_URL"].replace("//", "//looker:pw@")
    status, found = looked(terminal, AUTHGUARD_STORE_URL=url)
    (finding,) = found["AG068"]
    assert (status, finding["level"]) == (3, "error")
    assert finding["seen"] == "the store's user may not run EVAL, EVALSHA, which attempts need"
    assert "+eval +evalsha" in finding["mend"]
    assert not {"AG066", "AG067"}.intersection(found)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["check", "login"], {}),
        (["check", "--nothing"], {}),
        (["check"], {"AUTHGUARD_STORE_URL": "http://:tell-nobody@127.0.0.1"}),
        (["check"], {"AUTHGUARD_STORE_URL": None}),
        (["check"], {"AUTHGUARD_SECRET": "short"}),
        (["check", "--policy", "no-such-file.toml"], {}),
    ],
)
def test_wrong_use_is_status_2(
    terminal: Terminal, arguments: list[str], env: dict[str, str | None]
) -> None:
    """Arguments, an address, a secret or a policy of no use: a clear line, and no output."""
    result = CliRunner().invoke(commands, arguments, env={**terminal.env, **env})
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert "tell-nobody" not in result.stderr


def test_nothing_is_written(terminal_on: Callable[..., Terminal]) -> None:
    """A look leaves no key, moves no count, and puts nothing into the append-only file."""
    terminal = terminal_on(**KEPT)
    with plain(terminal) as client:
        before = client.info("persistence")["aof_current_size"]
        assert looked(terminal)[0] == 0
        assert client.dbsize() == 0
        kept = client.info("persistence")
        assert (kept["rdb_changes_since_last_save"], kept["aof_current_size"]) == (0, before)
        assert client.info("replication")["master_repl_offset"] == 0


def test_the_help_tells_status_3(terminal: Terminal) -> None:
    """Help names the exit statuses, its own among them."""
    told = CliRunner().invoke(commands, ["check", "--help"]).stdout
    assert "3  there is something to mend: a warning or an error" in told
    assert "1  the store gave" in told


def test_flask_authguard_looks_the_apps_own_store_over(
    terminal_on: Callable[..., Terminal], own_valkey: EmbeddedValkey
) -> None:
    """``flask authguard check``: the app's store and policies, without options to say where."""
    good = terminal_on(**KEPT).env["AUTHGUARD_STORE_URL"]
    for url, status in ((good, 0), (own_valkey.url, 3), ("valkey://127.0.0.1:1", 1)):
        app = Flask("an_app")
        app.config.update(AUTHGUARD_STORE_URL=url, AUTHGUARD_SECRET=DRAWN)
        app.config.update(AUTHGUARD_DEADLINE_MS=1_000, AUTHGUARD_TRUSTED_PROXIES=[])
        auth = AuthGuard(app, check_at_start=False)
        result = app.test_cli_runner().invoke(args=["authguard", "check"])
        assert result.exit_code == status
        if status == 1:
            assert result.stderr.startswith("Error: the store gave no clear answer (connection)")
        with app.app_context():
            auth.guard.close()
    helped = app.test_cli_runner().invoke(args=["authguard", "check", "--help"]).stdout
    assert "--store-url" not in helped
    assert "--json" in helped


def test_a_number_beyond_all_bounds_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    """What no server can mean is a warning, not an error of ours: INFO with 5,000 digits."""
    from authguard.ops.check.node import CantTellError, _number

    assert _number({"maxmemory": "9" * 20}, "maxmemory", "INFO memory") == int("9" * 20)
    with pytest.raises(CantTellError):
        _number({"maxmemory": "9" * 5_000}, "maxmemory", "INFO memory")


def test_every_reason_of_an_outage_is_told_where_it_is_explained() -> None:
    """No reason that a server's words stand for is told to look at an address that is right."""
    store_page = (Path(__file__).parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
    words = {word for _, word in _REASONS} | {*_MISTAKEN.values(), "breaker open", "unknown name"}
    assert [word for word in words if f"`{word}`" not in store_page] == []
    blaming = {word for word in words if "address is right" in mend_of(word)}
    assert blaming == {"connection", "timeout"}
