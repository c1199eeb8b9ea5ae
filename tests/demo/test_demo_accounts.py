"""The demo's accounts on a real SQLite file, from many threads and from two processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from authguard import Passwords
from demo_app.accounts import PEOPLE, SqlAccounts
from demo_app.database import ForeignDatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo_app.accounts import DemoAccount, Person

ROOT = Path(__file__).parents[2]

#: Half of two processes' work: all kinds of change, again and again, and reads between them.
BUSY = """
import sys
from demo_app.accounts import SqlAccounts

with SqlAccounts(sys.argv[1]) as accounts:
    key = accounts.find("omar").key
    for turn in range(100):
        accounts.set_password(key, f"hash {turn}")
        accounts.forget_devices(key)
        accounts.require_recovery(key, sys.argv[2])
        assert sys.argv[2] in accounts.get(key).recovery_required
        assert accounts.lift_recovery(key, sys.argv[2])
"""


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Name a file for the accounts."""
    return str(tmp_path / "accounts.sqlite")


@pytest.fixture
def accounts(database: str) -> Iterator[SqlAccounts]:
    """Give the demo accounts on a fresh file."""
    with SqlAccounts(database) as fresh:
        fresh.create(Passwords())
        yield fresh


def vera(accounts: SqlAccounts) -> DemoAccount:
    """Look an account up."""
    account = accounts.find("vera")
    assert account is not None
    return account


class TestLookUp:
    """Finding accounts."""

    @pytest.mark.parametrize("person", PEOPLE, ids=lambda person: person.username)
    def test_has_what_was_promised(self, accounts: SqlAccounts, person: Person) -> None:
        """Each account has its address, its number, its password, and is open for all actions."""
        for name in (person.username, person.email.upper(), person.phone):
            account = accounts.find(name)
            assert account == accounts.get(account.key)
            assert (account.username, account.email, account.phone) == (
                person.username,
                person.email,
                person.phone,
            )
            assert (account.active, account.second_factor) == (person.active, person.second_factor)
            assert Passwords().verify(account.password_hash, person.password)
            assert account.recovery_required == frozenset()

    @pytest.mark.parametrize("name", ["ghost", "ghost@example.test", "+14155550199", "", "\x00"])
    def test_unknown_is_none(self, accounts: SqlAccounts, name: str) -> None:
        """A name that nobody has, or that can be none, finds nobody."""
        assert accounts.find(name) is None
        assert accounts.get(name) is None

    def test_shows_nothing_secret(self, accounts: SqlAccounts) -> None:
        """An account in a log shows no hash, no stamp, no address."""
        account = vera(accounts)
        for secret in (
            account.password_hash,
            account.session_stamp,
            account.device_stamp,
            account.email,
            account.phone,
        ):
            assert secret not in repr(account)


class TestStart:
    """What the start of a run does."""

    def test_puts_all_into_their_state(self, accounts: SqlAccounts) -> None:
        """A new start keeps the keys; passwords, stamps and recovery are a fresh account's."""
        before = vera(accounts)
        accounts.set_password(before.key, "another's")
        accounts.require_recovery(before.key, "login")
        accounts.create(Passwords())
        after = vera(accounts)
        assert after.key == before.key
        assert Passwords().verify(after.password_hash, "correct horse vera")
        assert after.session_stamp != before.session_stamp
        assert after.device_stamp != before.device_stamp
        assert after.recovery_required == frozenset()

    def test_leaves_foreign_files_alone(self, database: str) -> None:
        """A file that holds somebody else's tables is refused, and not written to."""
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("CREATE TABLE account (mine)")
        with SqlAccounts(database) as accounts, pytest.raises(ForeignDatabaseError):
            accounts.create(Passwords())
        with closing(sqlite3.connect(database)) as other:
            tables = other.execute("SELECT name FROM sqlite_master").fetchall()
        assert tables == [("account",)]


class TestChanges:
    """Changing accounts."""

    def test_new_password_ends_sessions_and_devices(self, accounts: SqlAccounts) -> None:
        """A new password changes both stamps, of this account alone."""
        before, other = vera(accounts), accounts.find("omar")
        accounts.set_password(before.key, "new")
        after = vera(accounts)
        assert after.password_hash == "new"
        assert after.session_stamp != before.session_stamp
        assert after.device_stamp != before.device_stamp
        assert accounts.find("omar") == other

    def test_forgotten_devices_end_no_session(self, accounts: SqlAccounts) -> None:
        """Forgetting devices changes the device stamp and nothing else."""
        before = vera(accounts)
        accounts.forget_devices(before.key)
        after = vera(accounts)
        assert after.device_stamp != before.device_stamp
        assert after.session_stamp == before.session_stamp
        assert after.password_hash == before.password_hash

    def test_rehash_never_brings_an_old_password_back(self, accounts: SqlAccounts) -> None:
        """A rehash of the old password, late by one change of password, changes nothing."""
        account = vera(accounts)
        accounts.set_password(account.key, "new")
        accounts.replace_password_hash(account.key, account.password_hash, "old, rehashed")
        assert vera(accounts).password_hash == "new"
        accounts.replace_password_hash(account.key, "new", "new, rehashed")
        assert vera(accounts).password_hash == "new, rehashed"

    def test_recovery_tells_what_changed(self, accounts: SqlAccounts) -> None:
        """Shutting and opening tell whether they changed something, action by action."""
        key = vera(accounts).key
        assert accounts.require_recovery(key, "login")
        assert not accounts.require_recovery(key, "login")
        assert accounts.require_recovery(key, "otp.verify")
        assert vera(accounts).recovery_required == {"login", "otp.verify"}
        assert accounts.find("omar").recovery_required == frozenset()
        assert accounts.lift_recovery(key, "login")
        assert not accounts.lift_recovery(key, "login")
        assert vera(accounts).recovery_required == {"otp.verify"}

    def test_no_account_is_no_change(self, accounts: SqlAccounts) -> None:
        """A key that no account has changes nothing, and nothing is kept for it."""
        accounts.set_password("nobody", "new")
        accounts.forget_devices("nobody")
        assert not accounts.require_recovery("nobody", "login")
        assert not accounts.lift_recovery("nobody", "login")

    def test_outlives_the_process(self, accounts: SqlAccounts, database: str) -> None:
        """What was changed is there for whoever opens the file next."""
        account = vera(accounts)
        accounts.set_password(account.key, "new")
        accounts.require_recovery(account.key, "login")
        with SqlAccounts(database) as next_one:
            assert next_one.get(account.key) == vera(accounts)


class TestTogether:
    """Many at once."""

    def test_threads_agree_on_who_was_first(self, accounts: SqlAccounts) -> None:
        """Of 24 threads that shut or open an account together, one is told that it did."""
        key = vera(accounts).key
        with ThreadPoolExecutor(24) as pool:
            for change in (accounts.require_recovery, accounts.lift_recovery):
                told = list(pool.map(change, [key] * 24, ["login"] * 24))
                assert told.count(True) == 1

    def test_two_processes_and_threads_share_the_file(
        self, accounts: SqlAccounts, database: str
    ) -> None:
        """Two processes and eight threads that write without a pause all get through."""
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", BUSY, database, action], cwd=ROOT, stderr=subprocess.PIPE
            )
            for action in ("login", "otp.verify")
        ]
        key = accounts.find("omar").key
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(accounts.forget_devices, [key] * 200))
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, b"")
        after = accounts.get(key)
        assert after.password_hash == "hash 99"
        assert after.recovery_required == frozenset()
