"""Where a message goes: one mailbox and one number have one quota, however they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, InvalidInput
from authguard.identity import read_email, read_phone

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard

POLICIES = {
    "otp.send": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "100/1h"},
            {"name": "quota", "by": ["destination"], "sliding_log": "5/24h"},
            {"name": "range", "by": ["number_range"], "sliding_log": "8/1h"},
        ]
    }
}


@pytest.fixture
def send(guard_factory: Callable[..., Guard]) -> Callable[..., str]:
    """Ask to send a message; gives which limits refused."""
    guard = guard_factory(policies=POLICIES)

    def ask(destination: Any, account: str = "vera") -> str:
        try:
            guard.attempt("otp.send", account=account, destination=destination)
        except Denied as denied:
            return " ".join(denied.decision.refused_by)
        return "sent"

    return ask


def test_aliases_of_one_mailbox_share_its_quota(send: Callable[..., str]) -> None:
    """A21: plus-tags and dots make new accounts, and no new inbox: the sixth mail is refused."""
    aliases = ["v.i.c@gmail.com", "vic+1@gmail.com", "vi.c+2@googlemail.com", "VIC@GMAIL.COM"]
    for number, alias in enumerate([*aliases, "vic@gmail.com"]):
        assert send(alias, account=f"user-{number}") == "sent"
    assert send("v.ic+3@gmail.com", account="another") == "quota"
    assert send("vic@corp.example", account="another") == "sent"


def test_folding_can_be_left_out(send: Callable[..., str]) -> None:
    """Addresses read with fold=False are counted each by itself, whatever their provider does."""
    for number in range(6):
        assert send(read_email(f"vic+{number}@gmail.com", fold=False)) == "sent"


def test_spellings_of_one_domain_share_a_quota(send: Callable[..., str]) -> None:
    """A22: letter case and IDNA forms of a domain are one; what is no address is refused."""
    for address in ["a@EX.com", "A@ex.com", "a@Ex.Com", " a@ex.com ", "a@ex.com"]:
        assert send(address) == "sent"
    assert send("a@EX.COM") == "quota"
    for address in ["a@m\u00fcnchen.de", "a@xn--mnchen-3ya.de", "a@M\u00dcNCHEN.de"] * 2:
        last = send(address)
    assert last == "quota"
    for wrong in ("a@ex.com.", "a@", "a@b@c.example", "a@ex.com, b@ex.com", "a@ex.com\r\nBcc: b"):
        with pytest.raises(InvalidInput) as refused:
            send(wrong)
        assert (refused.value.field, "a@" in str(refused.value)) == ("destination", False)


def test_spellings_of_one_number_share_a_quota(send: Callable[..., str]) -> None:
    """A23: blanks, brackets, fullwidth signs and extensions make no new number."""
    spellings = [
        "+1 (415) 555-0101",
        "\uff0b14155550101",
        "+1.415.555.0101",
        "+14155550101;ext=1",
        "+14155550101",
    ]
    assert [send(spelling) for spelling in spellings] == ["sent"] * 5
    assert send("+1-415-555-0101;ext=2") == "quota"
    assert send(read_phone("0047 400 00 001", region="GB")) == "sent"


@pytest.mark.parametrize(
    "wrong", ["0015550100000", "+47", "+1555", "phone", "", "  ", 5, b"+14155550101", ["+1415"]]
)
def test_what_is_no_destination_is_refused(send: Callable[..., str], wrong: Any) -> None:
    """A23, A76: E.164 or one e-mail address, or a refusal that names the field."""
    with pytest.raises(InvalidInput, match=r"^destination: "):
        send(wrong)


def test_numbers_in_sequence_share_their_range(send: Callable[..., str]) -> None:
    """A80: E.164 less the last four digits: the ninth of 40 numbers in a row is refused."""
    answers = [send(f"+1415555{number:04}", account=f"user-{number}") for number in range(40)]
    assert answers == ["sent"] * 8 + ["range"] * 32
    assert send("+14155560000") == "sent"
    assert send("someone@example.com") == "sent"


def test_limits_by_destination_apply_where_one_is_given(
    guard_factory: Callable[..., Guard],
) -> None:
    """A limit whose part is absent does not apply; with a mailbox no limit by range does."""
    guard = guard_factory(policies=POLICIES)

    def names(**known: Any) -> list[str]:
        return [verdict.name for verdict in guard.peek("otp.send", **known).verdicts]

    assert names(account="vera") == ["account"]
    assert names(account="vera", destination="a@ex.com") == ["account", "quota"]
    assert names(destination="+14155550101") == ["quota", "range"]


def test_a_quota_can_be_cleared(guard_factory: Callable[..., Guard]) -> None:
    """An operator clears a number's own log by any spelling of it; its range is others' too."""
    guard = guard_factory(policies=POLICIES)
    guard.attempt("otp.send", account="vera", destination="+14155550101")
    assert guard.clear("otp.send", destination="+1 415 555 0101").entries == 1
