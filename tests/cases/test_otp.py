"""Codes, and what they tell of an account: cases of the kinds enumeration and OTP."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher

from authguard.flask import signals
from authguard.identity import AccountKey
from tests.flask.conftest import ALL_OF_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

ELSEWHERE = "198.51.100.7"
RIGHT = "right vera"


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site on set-up S, where a code lives ten minutes."""
    return site_factory(clock=clock, messages={"code_life_s": 600}, AUTHGUARD_POLICY=ALL_OF_S)


@pytest.fixture
def evaluated(post_site: Site) -> list[str]:
    """Write down every code that is compared with a live one."""
    codes: list[str] = []
    take = post_site.guard.one_time.take_code

    def spy(holder: Any, challenge: str, code: str) -> bool:
        codes.append(code)
        return bool(take(holder, challenge, code))

    post_site.guard.one_time.take_code = spy
    return codes


class Step:
    """One of the two steps at which somebody can guess."""

    def __init__(self, site: Site, name: str, codes: list[str]) -> None:
        self._site = site
        self._name = name
        self._codes = codes
        self._challenges: dict[str, str] = {}

    def evaluated(self) -> int:
        """Tell how many guesses were looked at."""
        return len(self._site.spy.checks if self._name == "password" else self._codes)

    def guess(self, who: str, *, client: str = ELSEWHERE) -> TestResponse:
        """Guess wrong: a password, or the code of a challenge that was opened first."""
        if self._name == "password":
            return self._site.login(who, client=client)
        if who not in self._challenges:
            self._challenges[who], _ = sent(self._site, who)
        return self._site.verify(self._challenges[who], "12345678", client=client)


@pytest.fixture(params=["password", "code"])
def step(request: pytest.FixtureRequest, post_site: Site, evaluated: list[str]) -> Step:
    """Give each step in turn."""
    return Step(post_site, request.param, evaluated)


def sent(site: Site, who: str = "vera", **how: Any) -> tuple[str, str]:
    """Have a code sent; give its challenge, and the newest code that went out."""
    how.setdefault("channel", "email")
    answer = site.send_code(who, **how)
    assert answer.status_code == 202
    assert answer.json is not None
    messages = site.messages("code")
    return answer.json["challenge"], (messages[0].code or "") if messages else ""


def wrong(code: str) -> str:
    """Give another code."""
    return f"{(int(code) + 1) % 10**8:08}"


def face(answer: TestResponse, own: str = "") -> tuple[int, str, list[tuple[str, str]]]:
    """Give all that a client sees of an answer, but for its own challenge."""
    text = answer.text.replace(own, "OWN") if own else answer.text
    return answer.status_code, text, list(answer.headers)


# Enumeration.


def test_unknown_names_lock_alike(step: Step) -> None:
    """B076: five tries are 401 and the sixth 429, in the same bytes for vera and for ghost."""
    sequences = [
        [face(step.guess(who, client=client)) for _ in range(7)]
        for who, client in (("vera", ELSEWHERE), ("ghost@example.test", "198.51.100.8"))
    ]
    assert sequences[0] == sequences[1]
    assert [status for status, _, _ in sequences[0]] == [401] * 5 + [429] * 2


def test_unknown_names_count(post_site: Site) -> None:
    """B077: 25 unknown names from one address: 20 are evaluated; of one name the sixth is 429."""
    heard: list[str | None] = []

    def listen(_app: object, *, subject: str | None, **_: Any) -> None:
        heard.append(subject)

    answers = [post_site.login(f"ghost-{number}").status_code for number in range(25)]
    assert answers == [401] * 20 + [429] * 5
    assert len(post_site.spy.checks) == 20
    with signals.account_locked.connected_to(listen):
        for _ in range(6):
            answer = post_site.login("Ghost@example.test", client=ELSEWHERE)
    assert answer.status_code == 429
    assert heard == [post_site.guard.subject("ghost@example.test")]


def test_unknown_names_count_at_the_code(post_site: Site, evaluated: list[str]) -> None:
    """B077: codes for 25 unknown names from one address: 20 are looked at; of one name five."""
    challenges = [
        sent(post_site, f"ghost-{number}", client=f"192.0.2.{number}")[0] for number in range(25)
    ]
    answers = [post_site.verify(challenge, "12345678").status_code for challenge in challenges]
    assert answers == [401] * 20 + [429] * 5
    assert len(evaluated) == 20
    answers = [
        post_site.verify(challenges[24], "12345678", client=ELSEWHERE).status_code for _ in range(6)
    ]
    assert answers == [401] * 5 + [429]


@pytest.mark.parametrize("password", ["", "x", "x" * 2000])
def test_every_password_costs_as_much(post_site: Site, password: str) -> None:
    """B079: empty, long or normal: for a known and an unknown name the same number of hashes."""
    costs = []
    for who in ("vera", "ghost"):
        before = len(post_site.spy.checks)
        answer = post_site.login(who, password)
        costs.append((answer.status_code, answer.data, len(post_site.spy.checks) - before))
    assert costs[0] == costs[1]
    assert costs[0][2] == (password == "x")


def test_the_dummy_is_a_hash(post_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """B080: for an unknown name argon2 really runs, once, with the parameters of live hashes."""
    verified: list[str] = []
    verify = PasswordHasher.verify

    def spy(self: PasswordHasher, stored: str, password: bytes) -> bool:
        verified.append(stored.rpartition("$")[0].rpartition("$")[0])
        return verify(self, stored, password)  # what is no hash raises InvalidHashError

    monkeypatch.setattr(PasswordHasher, "verify", spy)
    for who in ("vera", "ghost", "nora"):
        assert post_site.login(who).status_code == 401
    assert len(verified) == 3
    assert set(verified) == {"$argon2id$v=19$m=8,t=1,p=1"}
    post_site.spy.real = type(post_site.spy.real)()
    post_site.login("ghost")
    assert verified[3] == "$argon2id$v=19$m=19456,t=2,p=1"


def test_a_refused_try_hashes_nothing(post_site: Site) -> None:
    """B081: locked, neither name costs a hash, and both look alike, right password or wrong."""
    for who in ("vera", "ghost"):
        post_site.statuses(5, who)
    before = len(post_site.spy.checks)
    faces = [face(post_site.login(who, RIGHT)) for who in ("vera", "ghost") for _ in range(20)]
    assert all(each == faces[0] for each in faces)
    assert faces[0][0] == 429
    assert len(post_site.spy.checks) == before


def test_a_refused_code_is_not_compared(post_site: Site, evaluated: list[str]) -> None:
    """B081: a locked code step compares nothing, for the known name and the unknown one."""
    challenges = {who: sent(post_site, who) for who in ("vera", "ghost")}
    for challenge, _ in challenges.values():
        for _ in range(5):
            post_site.verify(challenge, "12345678")
    before = len(evaluated)
    code = challenges["vera"][1]
    faces = [face(post_site.verify(challenge, code)) for challenge, _ in challenges.values()]
    assert faces[0] == faces[1]
    assert faces[0][0] == 429
    assert len(evaluated) == before


def test_a_code_tells_nothing(post_site: Site) -> None:
    """B082: send, five wrong codes, a sixth, another send: the transcripts don't differ."""
    transcripts = []
    for who, client in (("vera", ELSEWHERE), ("ghost@example.test", "198.51.100.8")):
        answers = [post_site.send_code(who, "email", client=client)]
        assert answers[0].json is not None
        challenge = answers[0].json["challenge"]
        answers += [post_site.verify(challenge, "12345678", client=client) for _ in range(6)]
        answers.append(post_site.send_code(who, "email", client=client))
        transcripts.append([face(answer, challenge) for answer in answers])
    assert transcripts[0] == transcripts[1]
    assert [status for status, _, _ in transcripts[0]] == [202] + [401] * 5 + [429] * 2


# Codes.


def test_one_code_has_one_winner(
    site_factory: Callable[..., Site], clock: Clock, race: Callable[..., list[int]]
) -> None:
    """B083: twenty verifies of the right code at once: one success, the others 401 or 429."""
    site = site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)
    for _ in range(20):
        challenge, code = sent(site)
        answers = Counter(race(20, lambda: site.verify(challenge, code).status_code))  # noqa: B023 - over before the next round
        assert answers[200] == 1
        assert answers[401] + answers[429] == 19
        clock.advance(86_400_000)


@pytest.fixture
def race() -> Callable[..., list[int]]:
    """Give a way to do the same from many threads at one moment."""
    import threading
    from concurrent.futures import ThreadPoolExecutor

    def race(threads: int, call: Callable[[], int]) -> list[int]:
        barrier = threading.Barrier(threads)

        def one(_: int) -> int:
            barrier.wait()
            return call()

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, range(threads)))

    return race


def test_a_new_code_refills_no_guesses(post_site: Site, evaluated: list[str], clock: Clock) -> None:
    """B084: four wrong, a resend, one wrong: locked; then the newest code is 429, too."""
    challenge, code = sent(post_site)
    statuses = [post_site.verify(challenge, wrong(code)).status_code for _ in range(4)]
    clock.advance(60_000)
    challenge, code = sent(post_site, challenge=challenge)
    statuses += [post_site.verify(challenge, typed).status_code for typed in (wrong(code), code)]
    assert statuses == [401] * 5 + [429]
    assert len(evaluated) == 5


def test_no_loop_of_resends_gives_more_guesses(
    post_site: Site, evaluated: list[str], clock: Clock
) -> None:
    """B084: {resend when the wait allows, four wrong} over and over: five guesses in any 900 s."""
    made_at_ms: list[int] = []
    for _ in range(60):
        answer = post_site.send_code(channel="email")
        if answer.json is not None and answer.status_code == 202:
            challenge = answer.json["challenge"]
        for _ in range(4):
            before = len(evaluated)
            post_site.verify(challenge, "12345678", client=ELSEWHERE)
            made_at_ms += [clock.now_ms] * (len(evaluated) - before)
        clock.advance(61_000)
    for at_ms in made_at_ms:
        assert sum(at_ms <= each < at_ms + 900_000 for each in made_at_ms) <= 5
    assert len(made_at_ms) == 10  # there are five codes a day, and each lives ten minutes


def test_the_code_step_has_its_own_limit(post_site: Site, evaluated: list[str]) -> None:
    """B085: five wrong codes from five addresses and sessions; the right one from a sixth: 429."""
    challenge, code = sent(post_site)
    answers = [
        post_site.verify(challenge, typed, client=f"198.51.100.{number}").status_code
        for number, typed in enumerate([wrong(code)] * 5 + [code])
    ]
    assert answers == [401] * 5 + [429]
    assert len(evaluated) == 5
    locked = {
        action: [
            each.name
            for each in post_site.guard.usage(action, account=AccountKey("key-1"))
            if each.locked_until_ms is not None
        ]
        for action in ("otp.verify", "login")
    }
    assert locked == {"otp.verify": ["account"], "login": []}
    assert post_site.login("vera", RIGHT).status_code == 200


def test_a_used_code_stays_used(post_site: Site, clock: Clock) -> None:
    """B086: a code that was used is refused at +0, +45 and +85 s and to the end of its life."""
    challenge, code = sent(post_site)
    assert post_site.verify(challenge, code).status_code == 200
    for wait_ms in (0, 45_000, 40_000, 514_999, 1, 1):
        clock.advance(wait_ms)
        assert post_site.verify(challenge, code, client=ELSEWHERE).status_code in (401, 429)
        post_site.guard.clear("otp.verify", account=AccountKey("key-1"))
        assert post_site.verify(challenge, code, client=ELSEWHERE).status_code == 401
    challenge, code = sent(post_site)
    assert post_site.verify(challenge, code).status_code == 200


def test_both_steps_lock_at_the_same_try(step: Step) -> None:
    """B088: at the password and at the code five are evaluated, and the sixth is not."""
    assert [step.guess("vera").status_code for _ in range(6)] == [401] * 5 + [429]
    assert step.evaluated() == 5


def test_no_code_is_sent_that_could_not_work(post_site: Site) -> None:
    """B089: while the code step is locked a resend is 429 with its wait; no mail, no quota used."""
    challenge, code = sent(post_site)
    for _ in range(5):
        post_site.verify(challenge, wrong(code))
    quota = post_site.guard.usage("otp.send", account=AccountKey("key-1"))
    refused = post_site.verify(challenge, code)
    resend = post_site.send_code(channel="email", challenge=challenge)
    assert (refused.status_code, resend.status_code) == (429, 429)
    assert refused.headers["Retry-After"] == resend.headers["Retry-After"] == "900"
    assert len(post_site.messages()) == 1
    assert post_site.guard.usage("otp.send", account=AccountKey("key-1")) == quota


def test_a_resend_ends_the_code_before(post_site: Site, clock: Clock) -> None:
    """B090: after a resend the first code is 401 and a wrong guess, and the second one is 200."""
    challenge, first = sent(post_site)
    clock.advance(60_000)
    challenge, second = sent(post_site, challenge=challenge)
    assert post_site.verify(challenge, first).status_code == 401
    verdicts = post_site.guard.peek(
        "otp.verify", account=AccountKey("key-1"), client=post_site.home
    ).verdicts
    assert [verdict.remaining for verdict in verdicts] == [4, 19]
    assert post_site.verify(challenge, second).status_code == 200
