"""Names and destinations: one budget, however they are spelt; no two of them in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import InvalidInput, Passwords
from authguard.flask import current_attempt
from authguard.flask.state import state_of
from authguard.identity import normalise_identifier, read_email, read_phone
from demo_app.app import create_app
from demo_app.settings import Settings
from tests.cases.conftest import Door, add_door
from tests.conftest import PATIENT_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.flask.conftest import Site

FULL_WIDTH = "\uff56\uff45\uff52\uff41"
CIRCLED = "\u24e5\u24d4\u24e1\u24d0"

#: Set-up S's OTP send, with limits by where the message goes.
SEND = {
    "otp.send": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "20/24h"},
            {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
            {"name": "destination", "by": ["destination"], "sliding_log": "5/24h"},
            {"name": "range", "by": ["number_range"], "sliding_log": "10/24h"},
        ]
    }
}


def addresses(times: int) -> list[str]:
    """Give clients that share neither an address nor a network."""
    return [f"198.51.{number}.7" for number in range(times)]


def knock_from_everywhere(door: Door, names: list[str]) -> list[int]:
    """Try each name once, each from an address of its own."""
    clients = addresses(len(names))
    return [door.knock(name, client=at) for name, at in zip(names, clients, strict=True)]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            [
                "vera@example.test",
                "Vera@example.test",
                "VERA@EXAMPLE.TEST",
                "vera@Example.Test",
                "vErA@example.tesT",
                "VERA@example.test",
            ],
            id="B037 case",
        ),
        pytest.param(
            ["vera", "vera ", " vera", "\tvera\r\n", "\u00a0vera\u00a0", "\u3000vera"],
            id="B038 blanks",
        ),
        pytest.param(
            [f"{name}@example.test" for name in (CIRCLED, FULL_WIDTH, "vera") for _ in range(2)],
            id="B039 look-alikes",
        ),
        pytest.param(["j\u00fcrgen"] * 3 + ["ju\u0308rgen"] * 3, id="B041 then decomposed"),
        pytest.param(["ju\u0308rgen"] * 2 + ["j\u00fcrgen"] * 4, id="B041 then composed"),
    ],
)
def test_six_spellings_are_one_account(door: Door, names: list[str]) -> None:
    """B037, B038, B039, B041: five wrong guesses in all are evaluated, the sixth try is 429."""
    assert [door.knock(name) for name in names] == [401] * 5 + [429]
    assert door.evaluated == 5
    assert door.knock("omar") == 401


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            [
                "vera",
                "Vera",
                "vErA",
                "VERA",
                "veRa",
                "verA",
                "VEra",
                "veRA",
                "VeRa",
                "vERa",
                "VErA",
            ],
            id="A14 case",
        ),
        pytest.param(
            [f"{blank}vera" for blank in " \t\r\n\u00a0\u3000"]
            + [f"vera{blank}" for blank in "\u2003\u202f\u1680\u205f\x0b"],
            id="A15 blanks",
        ),
        pytest.param(
            [
                "kris",
                "KRIS",
                "\u212aris",
                "kri\u017f",
                "\u212aRI\u017f",
                "\u1d4f\u02b3\u2071\u02e2",
                "\uff4b\uff52\uff49\uff53",
                "\u24da\u24e1\u24d8\u24e2",
                "\U0001d424\U0001d42b\U0001d422\U0001d42c",
                "\U0001f13aris",
                "kr\u2170s",
            ],
            id="A16 compatibility forms",
        ),
    ],
)
def test_eleven_spellings_from_eleven_addresses(
    door_factory: Callable[..., Door], names: list[str]
) -> None:
    """A14, A15, A16: in the default profile ten guesses in all are evaluated, the 11th is 429."""
    door = door_factory(AUTHGUARD_POLICY=None)
    assert knock_from_everywhere(door, names) == [401] * 10 + [429]
    assert door.evaluated == 10


@pytest.mark.parametrize("body", ["alice%20", "%09alice", "alice%0d%0a", "%C2%A0alice", "+alice"])
def test_blanks_in_a_form(site: Site, body: str) -> None:
    """A15: blanks that a form carries encoded are trimmed as those of JSON are."""
    form = {"content_type": "application/x-www-form-urlencoded"}
    answers = [
        site.post(data=f"identifier={body}&password=wrong", **form).status_code for _ in range(3)
    ]
    answers += site.statuses(3, "alice")
    assert answers == [401] * 5 + [429]


@pytest.mark.parametrize(
    "letter",
    ["\u1e9e", "\u0130", "\u0345", "\u03f4", "\u2126", "\ufb03", "\u1fb3", "\u00df", "\u03c2"],
)
def test_a_name_stored_in_its_one_spelling_stays_there(door: Door, letter: str) -> None:
    """A17: what guard.normalise gives at sign-up is no second name of the account."""
    typed = f"a{letter}b"
    stored = door.site.guard.normalise(typed)
    answers = [door.knock(name) for name in (typed, stored, typed, stored, typed)]
    assert answers == [401] * 5
    assert [door.knock(name) for name in (typed, stored, typed.upper())] == [429] * 3


@pytest.mark.parametrize("unseen", ["\0", "\u200b", "\u00ad", "\ufeff", "\u202e", "\u2066", "\x1b"])
def test_unseen_characters(door: Door, unseen: str) -> None:
    """A18: a name that holds one is 400; its client pays, no account does, nothing is looked at."""
    names = [f"{unseen}vera", f"ve{unseen}ra", f"vera{unseen}"]
    assert [door.knock(names[number % 3]) for number in range(21)] == [400] * 20 + [429]
    assert door.evaluated == 0
    elsewhere = "198.51.100.7"
    assert [door.knock("vera", client=elsewhere) for _ in range(6)] == [401] * 5 + [429]


@pytest.mark.parametrize("look_alike", ["ver\u0430", "v\u0435ra", "\u03bdera"])
def test_confusables_lock_nobody_out(build: Callable[..., Site], look_alike: str) -> None:
    """A19: ten failures for a name with a Cyrillic or Greek letter leave the real vera alone."""
    site = build(AUTHGUARD_POLICY=None)
    door = Door(site, "/auth/login", "identifier")
    assert knock_from_everywhere(door, [look_alike] * 11) == [401] * 10 + [429]
    assert door.knock("vera", "right vera", client="198.51.0.7") == 200


class Reset:
    """A page of the app's own that mails a link to the stored address of the account counted."""

    def __init__(self, site: Site, emails: list[str]) -> None:
        self.outbox: list[str] = []
        self.site = site
        stored = {site.guard.normalise(each): each for each in emails}

        @site.app.post("/forgot")
        @site.auth.protect("password.forgot", account="email", destination="email")
        def forgot() -> tuple[str, int]:
            if current_attempt.account in stored:
                self.outbox.append(stored[current_attempt.account])
            return "", 202

    def ask(self, email: str) -> int:
        """Ask for a link."""
        return self.site.post("/forgot", json={"email": email}).status_code


def forgot_policy(**by: str) -> dict[str, Any]:
    """Give a policy of password.forgot with a limit by each of these."""
    limits = [{"name": part, "by": [part], "sliding_log": log} for part, log in by.items()]
    return {"password.forgot": {"limits": limits}}


@pytest.mark.parametrize("look_alike", ["m\u0131ke@example.test", "M\u0130KE@example.test"])
def test_a_dotless_i_is_another_account(build: Callable[..., Site], look_alike: str) -> None:
    """A20: m\u0131ke's three links take none of mike's; mail goes to the stored address alone."""
    policy = forgot_policy(account="3/1h", client="10/1h", destination="3/1h")
    reset = Reset(build(AUTHGUARD_POLICY=policy, blueprint=False), ["mike@example.test"])
    assert [reset.ask(look_alike) for _ in range(4)] == [202] * 3 + [429]
    assert reset.outbox == []
    assert [reset.ask("MIKE@Example.Test") for _ in range(4)] == [202] * 3 + [429]
    assert reset.outbox == ["mike@example.test"] * 3


def test_many_addresses_of_one_mailbox(build: Callable[..., Site]) -> None:
    """A21: six accounts whose addresses reach one inbox get five mails in 24 hours, not six."""
    stored = ["v+1@gmail.com", "v+2@gmail.com", "vic@gmail.com", "v.i.c@gmail.com"]
    stored += ["V.I.C+x@googlemail.com", "vi.c@gmail.com", "v.ic+y@gmail.com", "vic+1@gmail.com"]
    policy = forgot_policy(account="3/1h", client="20/24h", destination="5/24h")
    reset = Reset(build(AUTHGUARD_POLICY=policy, blueprint=False), stored)
    assert [reset.ask(email) for email in stored[2:]] == [202] * 5 + [429]
    assert len(reset.outbox) == 5
    assert [reset.ask(email) for email in stored[:2]] == [202] * 2
    reset.site.guard.clear("password.forgot", destination="vic@gmail.com")
    assert [reset.ask("vic@gmail.com") for _ in range(3)] == [202] * 2 + [429]
    assert reset.ask("v.i.c@gmail.com") == 202


def test_mailboxes_of_other_providers_are_not_folded(build: Callable[..., Site]) -> None:
    """A21: where a plus or a dot may be another person, each address has its own five mails."""
    policy = forgot_policy(account="9/1h", client="40/24h", destination="5/24h")
    reset = Reset(build(AUTHGUARD_POLICY=policy, blueprint=False), [])
    for email in ("v+1@example.test", "v+2@example.test", "v.1@example.test"):
        assert [reset.ask(email) for _ in range(6)] == [202] * 5 + [429]
    assert read_email("v+1@gmail.com", fold=False).mailbox == "v+1@gmail.com"


DOMAINS = ["a@EX.com", "a@ex.com", "A@eX.cOm", "a@ex\uff0ecom", "a@ex\u3002com", "\uff41@ex.com"]
IDN = ["a@b\u00fccher.example", "a@xn--bcher-kva.example", "a@B\u00dcCHER.example"]
IDN += ["a@bu\u0308cher.example", "a@XN--BCHER-KVA.example", "a@b\u00fccher\uff0eexample"]
#: IDNA 2008 knows a sharp s: another domain than strasse.example, though casefolding joins them.
SHARP_S = ["a@stra\u00dfe.example", "a@xn--strae-oqa.example", "A@Stra\u00dfe.Example"]
SHARP_S += ["a@XN--STRAE-OQA.example", "\uff41@stra\u00dfe.example", "a@stra\u00dfe\uff0eexample"]


@pytest.mark.parametrize("emails", [DOMAINS, IDN, SHARP_S], ids=["ASCII", "IDN", "sharp s"])
def test_spellings_of_a_domain_are_one_mailbox(
    build: Callable[..., Site], emails: list[str]
) -> None:
    """A22: five mails in all to one address, whatever the case or the encoding of its domain."""
    policy = forgot_policy(account="9/1h", client="20/24h", destination="5/24h")
    reset = Reset(build(AUTHGUARD_POLICY=policy, blueprint=False), [])
    assert [reset.ask(email) for email in emails] == [202] * 5 + [429]
    assert reset.ask("a@strasse.example") == 202


@pytest.mark.parametrize("emails", [DOMAINS, IDN, SHARP_S], ids=["ASCII", "IDN", "sharp s"])
def test_spellings_of_a_domain_are_one_account(
    build: Callable[..., Site], emails: list[str]
) -> None:
    """A22: with normalise_identifier five guesses in all, however the domain is written."""
    door = add_door(build(blueprint=False, normalise=normalise_identifier), "/door")
    assert [door.knock(email) for email in emails] == [401] * 5 + [429]
    assert door.evaluated == 5
    assert door.knock("a@strasse.example") == 401


@pytest.mark.parametrize("at", ["\uff20", "\ufe6b"])
def test_an_at_sign_of_another_width(build: Callable[..., Site], at: str) -> None:
    """A16, A22: with normalise_identifier an address is one account with any form of its @."""
    door = add_door(build(blueprint=False, normalise=normalise_identifier), "/door")
    emails = [f"a{each}b\u00fccher.example" for each in (at, "@")] * 2 + [IDN[1]] * 2
    assert [door.knock(email) for email in emails] == [401] * 5 + [429]


@pytest.mark.parametrize(
    "email",
    ["a@ex.com.", "a@ex..com", "a@", "@ex.com", "a@b@ex.com", "a@[203.0.113.9]", "a@ex,com"],
)
def test_an_impossible_domain_is_400(build: Callable[..., Site], email: str) -> None:
    """A22: what is no address gets no mail and counts for no account; its client pays."""
    policy = forgot_policy(account="3/1h", client="10/1h", destination="5/24h")
    reset = Reset(build(AUTHGUARD_POLICY=policy, blueprint=False), [email])
    assert [reset.ask(email) for _ in range(11)] == [400] * 10 + [429]
    assert reset.outbox == []
    assert reset.site.guard.peek("password.forgot", account=email).remaining == 3


@pytest.fixture
def send(build: Callable[..., Site]) -> Callable[[str, str], int]:
    """Give a view that sends codes: to whom, and to which number."""
    site = build(AUTHGUARD_POLICY=SEND, blueprint=False)

    @site.app.post("/send")
    @site.auth.protect("otp.send", account="username", destination="phone")
    def sent() -> str:
        return ""

    def ask(username: str, phone: str) -> int:
        return site.post("/send", json={"username": username, "phone": phone}).status_code

    return ask


PHONE = ["+1 (555) 010-0000", "+15550100000", "\uff0b1 555 010 0000", "+15550100000;ext=1"]
PHONE += ["+1-555-010-0000", "+1.555.010.0000"]


def test_spellings_of_a_phone_number(send: Callable[[str, str], int]) -> None:
    """A23: whoever asks, a number in six spellings gets five messages; the next one its own."""
    answers = [send(f"user-{number}", phone) for number, phone in enumerate(PHONE)]
    assert answers == [200] * 5 + [429]
    assert send("user-9", "+15550100001") == 200


def test_numbers_in_a_row(send: Callable[[str, str], int]) -> None:
    """A23: numbers that differ in their last four digits get ten messages together."""
    phones = [f"+1 (555) 010-{number:04}" for number in range(0, 10_000, 910)]
    answers = [send(f"user-{number}", phone) for number, phone in enumerate(phones)]
    assert answers == [200] * 10 + [429]
    assert send("another", "+1 (555) 011-0000") == 200


@pytest.mark.parametrize(
    "phone",
    [
        "0015550100000",
        "5550100000",
        "+1555",
        "+1 555 010 0000 or 0001",
        "tel:+15550100000",
        "+15550100000\u200b",
        "+15550100000,+15550100001",
        "+1111111111111111111111111",
        "+15550100000;ext=1;ext=2",
    ],
)
def test_what_is_no_phone_number_is_400(send: Callable[[str, str], int], phone: str) -> None:
    """A23: E.164 or 400: what can't be read as one number gets no message; its client pays."""
    answers = [send(f"user-{number}", phone) for number in range(21)]
    assert answers == [400] * 20 + [429]


def test_every_name_of_an_account_is_the_account(build: Callable[..., Site]) -> None:
    """A24: by username, e-mail, phone and key, from eleven addresses, ten failures in all."""
    site = build(AUTHGUARD_POLICY=None)
    door = Door(site, "/auth/login", "identifier")
    names = ["vera", "vera@example.test", "+14155550101", "key-1"] * 3
    assert knock_from_everywhere(door, names[:11]) == [401] * 10 + [429]
    assert [door.knock(name, "right vera", client="192.0.2.9") for name in names[:4]] == [429] * 4
    assert door.knock("omar", "right omar") == 200
    assert door.evaluated == 11


def six_spellings(phone: str) -> list[str]:
    """Write a North American number in six ways."""
    cut = (phone[1:2], phone[2:5], phone[5:8], phone[8:])
    ways = ["+{}{}{}{}", "+{} {} {} {}", "+{} ({}) {}-{}", "+{}-{}-{}-{}", "+{}.{}.{}.{}"]
    return [way.format(*cut) for way in (*ways, "\uff0b{}{}{}{}")]


def norwegian(text: str) -> str:
    """Read a name as an app does whose accounts are Norwegian phone numbers."""
    return read_phone(text, region="NO").number


@pytest.mark.parametrize(
    "how",
    [
        {"normalise": norwegian},
        {"normalise": lambda text: normalise_identifier(text, region="NO")},
        {"resolve": lambda text: {"+4740000001": "key-1"}.get(norwegian(text))},
    ],
    ids=["normalise", "normalise_identifier", "resolve"],
)
@pytest.mark.parametrize("action", ["otp.send", "otp.verify"])
def test_the_key_is_what_the_authenticator_looks_up(
    build: Callable[..., Site], how: dict[str, Any], action: str
) -> None:
    """B042: with the app's own normalise or resolve six spellings of a phone have five tries."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": "5/900s", "lockout": "900s"}]
    policy = {action: {"limits": limits}}
    site = build(blueprint=False, AUTHGUARD_POLICY=policy, **how)
    door = add_door(site, "/otp", action)
    phones = ["+47 400 00 001", "+4740000001", "0047-400-00-001", "400 00 001"]
    phones += ["\uff0b47 400 00 001", "+47.400.00.001"]
    assert [door.knock(phone) for phone in phones] == [401] * 5 + [429]
    assert door.evaluated == 5
    assert door.knock("+47 400 00 002") == 401


@pytest.mark.parametrize("phone", ["+14155550101", "+14155550102"], ids=["known", "unknown"])
def test_spellings_of_a_phone_tell_nothing(build: Callable[..., Site], phone: str) -> None:
    """B042, R6: with normalise_identifier six spellings have five tries, whether known or not."""
    site = build(normalise=normalise_identifier)
    site.people.find = lambda typed: site.people.get(  # type: ignore[method-assign]
        site.people.phones.get(normalise_identifier(typed), "")
    )
    door = Door(site, "/auth/login", "identifier")
    assert [door.knock(name) for name in six_spellings(phone)] == [401] * 5 + [429]


@pytest.mark.parametrize("phone", ["+14155550101", "+14155550199"], ids=["vera's", "nobody's"])
def test_the_demo_tells_nothing_of_a_phone(valkey_url: str, tmp_path: Path, phone: str) -> None:
    """B042, R6: in the demo too six spellings of a phone number have five tries, whoever has it."""
    settings = Settings(valkey_url, str(tmp_path / "demo.sqlite"), deadline_ms=PATIENT_MS)
    app = create_app(settings)
    state = state_of(app)
    assert state is not None
    accounts: Any = state.look_up.accounts
    with state.guard, accounts:
        state.passwords = Passwords.cheapest_for_tests()
        accounts.create(state.passwords)
        answers = [
            app.test_client().post("/auth/login", json={"identifier": name, "password": "wrong"})
            for name in six_spellings(phone)
        ]
    assert [answer.status_code for answer in answers] == [401] * 5 + [429]


@pytest.mark.parametrize("known", [True, False])
def test_a_normaliser_of_names_is_none_of_keys(build: Callable[..., Site], known: bool) -> None:
    """B042, R6: where names are phone numbers alone, an account's key need not be one."""
    site = build(normalise=norwegian)
    phones = {"+4740000001": "key-1"} if known else {}
    site.people.find = lambda typed: site.people.get(  # type: ignore[method-assign]
        phones.get(norwegian(typed), "")
    )
    door = Door(site, "/auth/login", "identifier")
    names = ["+47 400 00 001", "+4740000001", "0047-400-00-001", "400 00 001"] * 2
    assert [door.knock(name) for name in names[:6]] == [401] * 5 + [429]


def test_what_an_apps_normaliser_refuses_is_400(build: Callable[..., Site]) -> None:
    """B042: a name that the app's own function can't read is 400, and nothing is looked at."""
    site = build(blueprint=False, normalise=norwegian)
    door = add_door(site, "/door")
    assert [door.knock(name) for name in ("vera", "+47", "400", "+47 400 00 001 x")] == [400] * 4
    assert door.evaluated == 0
    with pytest.raises(InvalidInput):
        site.guard.normalise("vera")


def test_names_that_grow(door: Door) -> None:
    """A29: 254 ligatures that NFKC makes 4,572 characters of are 400; 254 letters are a name."""
    assert door.knock("\ufdfa" * 254) == 400
    assert door.knock("\ufdfa" * 14) == 401
    assert door.knock("a" * 254) == 401
    assert door.knock("a" * 255) == 400
    assert door.evaluated == 2
