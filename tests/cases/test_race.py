"""Kind ``race``: many requests in the same moment, in one web worker and in four."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import authguard
from authguard.errors import ConfigurationError
from tests.cases.web_worker import workers

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.cases.web_worker import Told, Worker
    from tests.flask.conftest import Site

# Found here by its name.
__all__ = ["workers"]

WIDE = {"name": "client", "by": ["client"], "sliding_log": "1000/300s"}
ACCOUNT = {"name": "account", "by": ["account"], "sliding_log": "5/300s", "lockout": "900s"}
POLICY: dict[str, Any] = {"login": {"limits": [ACCOUNT, WIDE]}}
ROUNDS = 20


def at_once(workers: list[Worker], identifier: str, password: str, times: int) -> Told:
    """Have all workers send so many requests each at one instant; give what came of all."""
    start_s = time.clock_gettime(time.CLOCK_MONOTONIC) + 0.1
    for each in workers:
        each.order(identifier, password, times=times, start_s=start_s)
    told = [each.told() for each in workers]
    answers = Counter(status for each in told for status, _ in each["answers"])
    return {"answers": dict(answers), "checked": sum(each["checked"] for each in told)}


@pytest.mark.slow
def test_a_burst_over_four_web_workers(
    workers: Callable[..., list[Worker]], build: Callable[..., Site]
) -> None:
    """B001: 4 processes POST 25 wrong passwords each at once: 5 are checked, in all 20 rounds."""
    four = workers(4, POLICY, threads=25)
    site = build(AUTHGUARD_POLICY=POLICY)
    for number in range(ROUNDS):
        name = f"round-{number}"
        told = at_once(four, name, "wrong", 25)
        assert told == {"answers": {401: 5, 429: 95}, "checked": 5}
        assert site.used(key=name) == 5
        assert site.guard.peek("login", account=name, client=site.home).verdicts[0].locked


@pytest.mark.slow
def test_failures_of_four_web_workers_all_count(
    workers: Callable[..., list[Worker]], build: Callable[..., Site]
) -> None:
    """B002: 4 x 25 failures at once with a limit of 1,000 are 100, by account and by client."""
    wide = {"login": {"limits": [ACCOUNT | {"sliding_log": "1000/300s"}, WIDE]}}
    told = at_once(workers(4, wide, threads=25), "vera", "wrong", 25)
    assert told == {"answers": {401: 100}, "checked": 100}
    site = build(AUTHGUARD_POLICY=wide)
    assert [site.used(), site.used("client")] == [100, 100]


@pytest.mark.slow
def test_right_passwords_over_four_web_workers(
    workers: Callable[..., list[Worker]], build: Callable[..., Site]
) -> None:
    """B006: right passwords at once, 5, and 20 in turn, and 20 at once: no lock, none counted."""
    one, two, *_ = four = workers(4, POLICY, threads=5)
    site = build(AUTHGUARD_POLICY=POLICY)

    def free() -> bool:
        verdict = site.guard.peek("login", account="key-1", client=site.home).verdicts[0]
        return verdict.remaining == 5 and not verdict.locked

    assert at_once([one], "vera", "right vera", 5)["answers"] == {200: 5}
    assert free()
    for each in (one, two) * 10:
        each.order("vera", "right vera")
        assert each.told()["answers"][0][0] == 200
    assert free()
    answers = at_once(four, "vera", "right vera", 5)["answers"]
    assert set(answers) <= {200, 429}
    assert answers[200] >= 5
    assert free()
    two.order("vera", "right vera")
    assert two.told()["answers"][0][0] == 200


@pytest.mark.slow
def test_wrong_passwords_while_logs_expire(
    build: Callable[..., Site], client: valkey.Valkey
) -> None:
    """B005: 20 s of wrong passwords, window and lock 1 s: 401 or 429, and each key has an end."""
    limits = [
        {"name": "account", "by": ["account"], "sliding_log": "5/1s", "lockout": "1s"},
        {"name": "client", "by": ["client"], "sliding_log": "1000/1s"},
    ]
    site = build(AUTHGUARD_POLICY={"login": {"limits": limits}})
    longest_ms = {False: 1_000, True: 2_000}  # a log its window; a lock its length and the quiet
    ends_s = time.monotonic() + 20
    answers: Counter[int] = Counter()
    wrong: list[object] = []
    counting = threading.Lock()

    def work() -> None:
        while time.monotonic() < ends_s:
            status = site.login().status_code
            lives = {key: client.pttl(key) for key in client.scan_iter()}
            with counting:
                answers[status] += 1
                wrong.extend(
                    (key, life_ms)
                    for key, life_ms in lives.items()  # -2: gone since; 0: its last millisecond
                    if life_ms != -2 and not 0 <= life_ms <= longest_ms[key.endswith(b"!")]
                )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert set(answers) == {401, 429}
    assert len(site.spy.checks) == answers[401]
    time.sleep(2.1)
    assert site.login().status_code == 401
    assert [site.used(), client.dbsize()] == [1, 2]


def test_no_store_in_the_process_is_shipped_for_use(guard_factory: Callable[..., Guard]) -> None:
    """B008: the store in memory is the tests' oracle: no address and no setting leads to it."""
    assert [name for name in authguard.__all__ if "Memory" in name or "Store" in name] == [
        "StoreUnavailable"
    ]
    for address in ("memory://", "memory", "sqlite:///x", "file:///x"):
        with pytest.raises(ConfigurationError, match=r"^AG010"):
            guard_factory(store=address)
    package = Path(authguard.__file__).parent
    naming = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "MemoryStore" in path.read_text() or "stores.memory" in path.read_text()
    ]
    assert [name for name in naming if not name.startswith("stores/")] == []
