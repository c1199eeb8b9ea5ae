"""Cases of the kind reset, from outside: mails without limit, links that live too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.flask.conftest import ALL_OF_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.test import TestResponse

    from tests.conftest import Clock
    from tests.flask.conftest import Site

MINUTE = 60_000
NEW = "a new password"
OTHER = "198.51.100.7"


@pytest.fixture
def post_site(site_factory: Callable[..., Site], clock: Callable[[], int]) -> Site:
    """Give a site that sends, on set-up S."""
    return site_factory(clock=clock, messages={}, AUTHGUARD_POLICY=ALL_OF_S)


def forgot(site: Site, who: str = "vera", **how: Any) -> TestResponse:
    """Ask for a link."""
    return site.post("/auth/password/forgot", json={"identifier": who}, **how)


def reset(site: Site, token: str, password: str = NEW, **how: Any) -> TestResponse:
    """Set a new password."""
    body = {"token": token, "password": password}
    return site.post("/auth/password/reset", json=body, **how)


def link(site: Site, who: str = "vera") -> str:
    """Ask for a link, and give its token."""
    assert forgot(site, who).status_code == 202
    return str(site.messages("reset")[0].token)


def face(answer: TestResponse) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Give all that a client sees."""
    return answer.status_code, answer.data, list(answer.headers)


def left(site: Site, action: str, **who: Any) -> dict[str, int]:
    """Tell how many places of each limit are free."""
    return {each.name: each.remaining for each in site.guard.peek(action, **who).verdicts}


def test_fifty_requests_are_three_mails(post_site: Site) -> None:
    """B091: 50 requests for vera from 50 addresses: three mails, and every answer as for nobody."""
    faces = [
        [face(forgot(post_site, name, client=f"198.51.{n}.7")) for n in range(50)]
        for name in ("vera", "ghost")
    ]
    assert faces[0] == faces[1]
    assert [status for status, _, _ in faces[0]] == [202] * 3 + [429] * 47
    assert [sent.to for sent in post_site.messages()] == ["vera@example.test"] * 3


def test_an_address_asks_ten_times_an_hour(post_site: Site, clock: Clock) -> None:
    """B091: twelve names from one address: ten are accepted, the next at the hour's end."""
    answers = [forgot(post_site, f"user-{n}").status_code for n in range(12)]
    assert answers == [202] * 10 + [429] * 2
    assert forgot(post_site, "vera", client=OTHER).status_code == 202
    clock.advance(60 * MINUTE)
    assert forgot(post_site, "user-12").status_code == 202


def test_six_spellings_are_three_mails(post_site: Site) -> None:
    """B092: Vera@, vera@, blanks and the user name share one budget: three mails in all."""
    spellings = [
        *("Vera@example.test", "vera@example.test", " vera@example.test "),
        *("VERA@EXAMPLE.TEST", "vera", " Vera "),
    ]
    answers = [
        forgot(post_site, name, client=f"198.51.{n}.7").status_code
        for n, name in enumerate(spellings)
    ]
    assert answers == [202] * 3 + [429] * 3
    assert len(post_site.messages()) == 3


def test_spellings_meet_the_addresses_limit_too(post_site: Site) -> None:
    """B092: from one address the eleventh request is refused, however the names are spelt."""
    names = [each for n in range(6) for each in (f"User-{n}", f" user-{n} ")]
    assert [forgot(post_site, name).status_code for name in names] == [202] * 10 + [429] * 2


def test_locked_then_reset_is_in(post_site: Site) -> None:
    """B094: asking lifts nothing; a completed reset lets the owner in, and clears no address."""
    assert post_site.statuses(5) == [401] * 5
    token = link(post_site)
    assert post_site.login("vera", "right vera").status_code == 429
    assert reset(post_site, token).status_code == 200
    assert post_site.used("client") == 5
    assert post_site.used() == 0
    assert post_site.login("vera", NEW).status_code == 200
    assert post_site.used("client") == 5


def test_a_reset_clears_no_count_of_codes(post_site: Site) -> None:
    """B094: five wrong codes stay five, and their lock stays, after a reset."""
    challenge = (post_site.send_code().json or {})["challenge"]
    answers = [post_site.verify(challenge, "00000000").status_code for _ in range(5)]
    assert answers == [401] * 5
    assert reset(post_site, link(post_site)).status_code == 200
    assert post_site.verify(challenge, "00000000").status_code == 429
    assert post_site.login("vera", NEW).status_code == 200


def test_a_reset_opens_no_block(post_site: Site) -> None:
    """B094: omar, blocked by an operator, completes a reset and is still refused."""
    omar = post_site.guard.account_key("omar")
    post_site.guard.block(account=omar)
    assert forgot(post_site, "omar").status_code == 429
    post_site.guard.unblock(account=omar)
    token = link(post_site, "omar")
    post_site.guard.block(account=omar)
    assert reset(post_site, token).status_code == 200
    assert post_site.login("omar", NEW).status_code == 429
    assert post_site.login("vera", "right vera").status_code == 200


def test_a_link_has_no_code_to_guess(post_site: Site) -> None:
    """B095: there are no short codes: numbers are refused, 20 an hour, and kill nobody's link."""
    token = link(post_site)
    numbers = [f"{number:0{digits}}" for number in range(5) for digits in (4, 6, 8, 20)]
    answers = [reset(post_site, number).status_code for number in numbers]
    assert answers == [400] * 20
    assert reset(post_site, token).status_code == 429
    code = post_site.send_code(client=OTHER).json or {}
    sent = post_site.messages("code")[0].code
    assert reset(post_site, str(sent), client=OTHER).status_code == 400
    assert reset(post_site, code["challenge"], client=OTHER).status_code == 400
    assert reset(post_site, token, client=OTHER).status_code == 200


def test_guesses_over_many_addresses_find_nothing(post_site: Site) -> None:
    """B095: bits of a token don't help: every change of the right one is a wrong one."""
    token = link(post_site)
    for at in range(43):
        other = "A" if token[at] != "A" else "Z"
        guess = token[:at] + other + token[at + 1 :]
        assert reset(post_site, guess, client=f"198.51.{at}.7").status_code == 400
    assert reset(post_site, token).status_code == 200


@pytest.mark.parametrize("why", ["expired", "used"])
def test_a_dead_link_sends_nothing(post_site: Site, clock: Clock, why: str) -> None:
    """B096: 20 tries of a dead link: 400, no mail, nothing about the account; the 21st is 429."""
    token = link(post_site)
    if why == "used":
        assert reset(post_site, token).status_code == 200
    clock.advance(30 * MINUTE if why == "expired" else 0)
    sent = len(post_site.messages())
    answers = [reset(post_site, token) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [400] * 20 + [429]
    assert len(post_site.messages()) == sent
    for answer in answers:
        assert "vera" not in answer.text
        assert "Location" not in answer.headers
    page = post_site.browser().get("/auth/password/reset", query_string={"token": token})
    assert page.status_code == 200
    assert "vera" not in page.text
    assert len(post_site.messages()) == sent


def test_earlier_links_die_with_the_password(post_site: Site, clock: Clock) -> None:
    """B097: L1, L2; L2 is used, L1 is dead. L3; the password is changed inside, L3 is dead."""
    first, second = link(post_site), link(post_site)
    assert reset(post_site, second).status_code == 200
    assert reset(post_site, first).status_code == 400
    third = link(post_site)
    post_site.people.set_password("key-1", post_site.spy.hash("changed inside"))
    assert reset(post_site, third).status_code == 400
    assert post_site.login("vera", "changed inside").status_code == 200


def test_an_unlock_link_dies_with_the_password_too(post_site: Site) -> None:
    """B097: all links that were sent before are dead, whatever they were for."""
    post_site.statuses(5)
    unlock = post_site.messages("unlock")[0].token
    assert reset(post_site, link(post_site)).status_code == 200
    post_site.statuses(5)
    newer = post_site.messages("unlock")[0].token
    assert post_site.post("/auth/unlock", json={"token": unlock}).status_code == 400
    assert post_site.post("/auth/unlock", json={"token": newer}).status_code == 200
