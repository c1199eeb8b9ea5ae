"""Clients that hang up while their password is hashed: the bound holds, and each is counted."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from authguard import HashingUnavailable, Passwords

from .conftest import a_guard, run, until

if TYPE_CHECKING:
    import valkey

CAP = 4
CLIENTS = 100


class Watched:
    """A hasher that tells how many verifications run at once; each takes its time."""

    def __init__(self, hasher: Any) -> None:
        self._hasher = hasher
        self._mutex = threading.Lock()
        self.running = self.most = self.begun = 0

    def verify(self, stored: str, secret: bytes) -> bool:
        """Verify, watched."""
        with self._mutex:
            self.running += 1
            self.begun += 1
            self.most = max(self.most, self.running)
        try:
            time.sleep(0.05)
            return bool(self._hasher.verify(stored, secret))
        finally:
            with self._mutex:
                self.running -= 1


def test_clients_that_hang_up_free_no_slot(valkey_url: str, client: valkey.Valkey) -> None:
    """B126: 100 logins cancelled together: never over 4 verifications run, and each is counted."""
    passwords = Passwords.cheapest_for_tests(slots=CAP, queue=CLIENTS, wait_s=30)
    passwords._hasher = watched = Watched(passwords._hasher)
    stored = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$c29tZXRhZ3NvbWV0YWc"

    async def story() -> list[int]:
        # More threads than slots, or the threads would be the bound.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * CAP))
        async with a_guard(valkey_url) as guard:
            inside = 0

            async def login(number: int) -> None:
                nonlocal inside
                asked = {"account": f"u{number}", "client": f"192.0.2.{number}"}
                async with guard.attempt("login", **asked) as attempt:
                    inside += 1
                    if await asyncio.to_thread(passwords.verify, stored, "wrong"):
                        await attempt.succeed()

            tasks = [asyncio.ensure_future(login(number)) for number in range(CLIENTS)]
            await until(lambda: inside == CLIENTS and watched.begun >= CAP)
            running = watched.running
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            gone = sum(isinstance(each, asyncio.CancelledError) for each in ended)
            assert gone >= CLIENTS - 4 * CAP
            assert running > 0
            # Whoever comes next waits for a slot, though nobody waits for those that hash.
            late = [asyncio.to_thread(passwords.verify, stored, "wrong") for _ in range(2 * CAP)]
            assert not any(await asyncio.gather(*late))
            left = []
            for number in range(CLIENTS):
                asked = {"account": f"u{number}", "client": f"192.0.2.{number}"}
                left.append((await guard.peek("login", **asked)).verdicts[0].remaining)
            return left

    assert run(story()) == [4] * CLIENTS
    assert watched.most == CAP


def test_a_machine_too_busy_to_hash_locks_nobody_out(valkey_url: str) -> None:
    """HashingUnavailable from the thread ends the block, and the attempt is given back."""
    passwords = Passwords.cheapest_for_tests(slots=1, queue=0)

    async def story() -> int:
        async with a_guard(valkey_url) as guard:
            asked = {"account": "vera", "client": "192.0.2.7"}
            refused = 0
            with passwords._slots:
                for _ in range(8):
                    try:
                        async with guard.attempt("login", **asked):
                            await asyncio.to_thread(passwords.verify, None, "wrong")
                    except HashingUnavailable:
                        refused += 1
            assert (await guard.peek("login", **asked)).verdicts[0].remaining == 5
            return refused

    assert run(story()) == 8
