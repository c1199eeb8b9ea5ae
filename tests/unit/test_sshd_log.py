"""The sshd log's reader: what counts as a try, whose it is, and when it was."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from authguard.ops.sshd_log import UnreadableLogError, parse_sshd_log, read_sshd_log

if TYPE_CHECKING:
    from authguard.ops.sshd_log import SshdLog

TODAY = date(2026, 7, 1)
REAL_LOG = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "openssh_2k.log"


def parse(*lines: str, year: int | None = None, latest: date = TODAY) -> SshdLog:
    """Parse lines as if the file had been written on ``latest``."""
    return parse_sshd_log(lines, year=year, latest=latest)


def told(message: str) -> list[tuple[str, str, bool, int]]:
    """Give what one message of sshd's tells: account, client, succeeded, times."""
    log = parse(f"Dec 10 06:55:46 gate sshd[24200]: {message}")
    return [(one.account, str(one.client), one.succeeded, one.times) for one in log.sign_ins]


def times_of(*stamps: str, year: int | None = None, latest: date = TODAY) -> list[str]:
    """Give when failures with these stamps were, in the order of time."""
    lines = [
        f"{stamp} gate sshd[1]: Failed password for a from 192.0.2.1 port 2" for stamp in stamps
    ]
    log = parse(*lines, year=year, latest=latest)
    return [
        datetime.fromtimestamp(one.at_ms / 1000, UTC).isoformat(timespec="milliseconds")[:23]
        for one in log.sign_ins
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Failed password for root from 192.0.2.7 port 40000 ssh2",
            ("root", "192.0.2.7", False, 1),
        ),
        (
            "Failed password for invalid user webmaster from 192.0.2.7 port 4 ssh2",
            ("webmaster", "192.0.2.7", False, 1),
        ),
        (
            "Accepted password for vera from 2001:DB8:0:0:0::9 port 4 ssh2",
            ("vera", "2001:db8::9", True, 1),
        ),
        (
            "Failed keyboard-interactive/pam for invalid user x from ::ffff:192.0.2.7 port 4 ssh2",
            ("x", "192.0.2.7", False, 1),
        ),
        (
            "Accepted keyboard-interactive/pam for vera from fe80::1%eth0 port 4 ssh2",
            ("vera", "fe80::1", True, 1),
        ),
        (
            "Partial password for vera from 192.0.2.7 port 4 ssh2",
            ("vera", "192.0.2.7", True, 1),
        ),
        (
            "message repeated 5 times: [ Failed password for root from 192.0.2.7 port 4 ssh2]",
            ("root", "192.0.2.7", False, 5),
        ),
        ("Failed password for root from 192.0.2.7 port 4", ("root", "192.0.2.7", False, 1)),
    ],
)
def test_a_result_of_a_typed_credential_is_read(
    message: str, expected: tuple[str, str, bool, int]
) -> None:
    """Every form in which sshd tells a password's or PAM's result is read whole."""
    assert told(message) == [expected]


@pytest.mark.parametrize(
    "message",
    [
        "Failed none for invalid user 0 from 192.0.2.7 port 4 ssh2",
        "Failed publickey for vera from 192.0.2.7 port 4 ssh2: RSA SHA256:abc",
        "Accepted publickey for vera from 192.0.2.7 port 4 ssh2: ED25519 SHA256:abc",
        "Failed keyboard-interactive for vera from 192.0.2.7 port 4 ssh2",
        "Postponed keyboard-interactive for vera from 192.0.2.7 port 4 ssh2 [preauth]",
        "Invalid user webmaster from 192.0.2.7",
        "PAM 5 more authentication failures; logname= uid=0 rhost=192.0.2.7  user=root",
        "Disconnecting: Too many authentication failures for root [preauth]",
        "message repeated 5 times: [ Invalid user root from 192.0.2.7]",
        "Did not see: Failed password for root from 192.0.2.7 port 4 ssh2",
    ],
)
def test_what_looked_at_no_credential_is_no_try(message: str) -> None:
    """Other methods and other messages are counted as other lines, never as tries."""
    log = parse(f"Dec 10 06:55:46 gate sshd[24200]: {message}")
    assert (log.sign_ins, log.other_lines, log.damaged_lines, log.sshd_lines) == ((), 1, 0, 1)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " 0101",
        "bob ",
        "bob  smith",
        "x from 192.0.2.99 port 22 ssh2",
        "x from 192.0.2.99 port 22 ssh2 from 192.0.2.98 port 22 ssh2]",
        "root from",
        "from 192.0.2.99",
        "invalid user y",
        "message repeated 99 times: [ Failed password for z from 192.0.2.99 port 1 ssh2]",
        "Accepted password for z from 192.0.2.99 port 1 ssh2 [preauth]",
        "ü\u2028€",
        "\\303\\274",
    ],
)
@pytest.mark.parametrize("wrap", ["{}", "message repeated 3 times: [ {}]"])
def test_a_name_never_moves_the_blame(name: str, wrap: str) -> None:
    """Whatever the client calls itself, the name is kept and the address is sshd's own."""
    result = wrap.format(f"Failed password for invalid user {name} from 203.0.113.5 port 4 ssh2")
    assert told(result) == [(name, "203.0.113.5", False, 1 if wrap == "{}" else 3)]


@settings(deadline=None)  # the cores are shared
@given(name=st.text(st.characters(exclude_characters="\r\n"), max_size=100))
@example(name=" from ::1 port 1 ssh2")
def test_any_name_comes_back_whole(name: str) -> None:
    """A failure's name and address survive any characters in the name."""
    message = f"Failed password for invalid user {name} from 2001:db8::5 port 4 ssh2"
    assert told(message) == [(name, "2001:db8::5", False, 1)]


@pytest.mark.parametrize(
    "prefix",
    [
        "Dec 10 06:55:46 LabSZ sshd[24200]:",
        "Dec  1 06:55:46 gate.example.test sshd[24200]:",
        "Dec 10 06:55:46 192.0.2.3 sshd-session[24200]:",
        "Dec 10 06:55:46 2001:db8::3 sshd-auth[24200]:",
        "Dec 10 06:55:46.123456 höst_1 sshd[1]:",
        "Dec 10 06:55:46 gate auth.info sshd[1]:",
        "<38>Dec 10 06:55:46 gate sshd:",
        "2024-12-10T06:55:46.123456+01:00 gate sshd[1]:",
        "2024-12-10T06:55:46+0100 gate sshd[1]:",
        "2024-12-10T06:55:46Z gate sshd[1]:",
        "2024-12-10 06:55:46,5 gate sshd[1]:",
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \r\n"])
def test_every_common_form_of_syslog_is_read(prefix: str, end: str) -> None:
    """Hosts of any kind, old and new program names, both kinds of stamp and of line end."""
    log = parse(f"{prefix} Failed password for root from 192.0.2.7 port 4 ssh2{end}")
    assert [str(one.client) for one in log.sign_ins] == ["192.0.2.7"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "Dec 10 06:55:46 gate su[3]: Failed password for root from 192.0.2.7 port 4 ssh2",
        "Dec 10 06:55:46 gate cron[3]: sshd[4]: Failed password for a from 192.0.2.7 port 4 ssh2",
        "Failed password for root from 192.0.2.7 port 4 ssh2",
        "Foo 10 06:55:46 gate sshd[3]: Failed password for root from 192.0.2.7 port 4 ssh2",
    ],
)
def test_lines_of_others_are_counted_and_left(line: str) -> None:
    """A line that isn't sshd's is never a try, but is in the count."""
    log = parse(line)
    assert (log.sign_ins, log.lines, log.other_lines, log.sshd_lines) == ((), 1, 1, 0)


@pytest.mark.parametrize(
    "line",
    [
        "Dec 10 06:55:46 gate sshd[3]: Failed password for root from 192.0.2.7 po",
        "Dec 10 06:55:46 gate sshd[3]: Failed password for root from 192.0.2.777 port 4 ssh2",
        "Dec 10 06:55:46 gate sshd[3]: Failed password for root from UNKNOWN port 65535 ssh2",
        "Feb 30 06:55:46 gate sshd[3]: Failed password for root from 192.0.2.7 port 4 ssh2",
        "2023-02-29T06:55:46Z gate sshd[3]: Failed password for root from 192.0.2.7 port 4 ssh2",
        "1969-12-31T06:55:46Z gate sshd[3]: Failed password for root from 192.0.2.7 port 4 ssh2",
    ],
)
def test_a_damaged_result_is_counted_apart(line: str) -> None:
    """A result that can't be read is neither guessed at nor dropped without a trace."""
    log = parse(line)
    assert (log.sign_ins, log.other_lines, log.damaged_lines, log.lines) == ((), 0, 1, 1)


def test_last_message_repeated_means_the_hosts_line_before() -> None:
    """The older syslogd's folding counts too, and only after a try of the same host."""
    failed = "sshd[1]: Failed password for root from 192.0.2.7 port 4 ssh2"
    log = parse(
        f"Dec 10 06:00:00 a {failed}",
        "Dec 10 06:00:01 b sshd[1]: Connection closed",
        "Dec 10 06:00:02 a last message repeated 2 times",
        "Dec 10 06:00:03 b last message repeated 7 times",
        "Dec 10 06:00:04 a cron[1]: hello",
        "Dec 10 06:00:05 a last message repeated 9 times",
    )
    assert [one.times for one in log.sign_ins] == [1, 2]
    assert log.other_lines == 4


def test_new_year_is_crossed_and_late_lines_are_put_in_order() -> None:
    """December to January is one step on; a line of the old year that comes late stays in it."""
    stamps = ("Dec 31 23:59:59", "Jan  1 00:00:01", "Dec 31 23:59:58", "Jan  1 00:00:00")
    assert times_of(*stamps) == [
        "2025-12-31T23:59:58.000",
        "2025-12-31T23:59:59.000",
        "2026-01-01T00:00:00.000",
        "2026-01-01T00:00:01.000",
    ]


def test_new_year_is_seen_in_lines_that_are_no_tries() -> None:
    """A year that only other programs' lines tell of is counted all the same."""
    failed = "gate sshd[1]: Failed password for a from 192.0.2.1 port 2"
    others = [f"{month} 10 00:00:00 gate cron[1]: tick" for month in ("Aug", "Dec", "Mar", "May")]
    log = parse(f"Jun 10 00:00:00 {failed}", *others, f"Jun  9 00:00:00 {failed}")
    days = [one.at_ms // 86_400_000 for one in log.sign_ins]
    assert days[1] - days[0] == 364


@pytest.mark.parametrize(
    ("latest", "expected"),
    [
        (date(2026, 7, 1), "2025-12-10T06:00:00.000"),
        (date(2026, 12, 9), "2026-12-10T06:00:00.000"),
        (date(2026, 12, 8), "2025-12-10T06:00:00.000"),
        (date(1970, 1, 1), "1999-12-10T06:00:00.000"),
    ],
)
def test_a_year_is_found_from_the_files_own_date(latest: date, expected: str) -> None:
    """The latest year that puts no line in the file's future, with a day's grace for zones."""
    assert times_of("Dec 10 06:00:00", latest=latest) == [expected]


def test_a_leap_day_finds_a_leap_year() -> None:
    """29 February pins the year, in the first year of the log or a later one."""
    assert times_of("Feb 29 12:00:00") == ["2024-02-29T12:00:00.000"]
    assert times_of("Dec 31 12:00:00", "Feb 29 12:00:00", "Mar  1 12:00:00") == [
        "2023-12-31T12:00:00.000",
        "2024-02-29T12:00:00.000",
        "2024-03-01T12:00:00.000",
    ]


def test_a_given_year_is_the_first_lines() -> None:
    """--year dates the first line, and later ones follow over New Year."""
    assert times_of("Dec 31 12:00:00", "Jan  1 12:00:00", year=2019) == [
        "2019-12-31T12:00:00.000",
        "2020-01-01T12:00:00.000",
    ]


def test_rfc_3339_stamps_are_taken_at_their_word() -> None:
    """Zone and fraction count; no year is assumed."""
    assert times_of("2024-12-31T23:30:00.250-01:00", "2024-12-31T23:30:00.25Z") == [
        "2024-12-31T23:30:00.250",
        "2025-01-01T00:30:00.250",
    ]
    failed = "gate sshd[1]: Failed password for a from 192.0.2.1 port 2"
    assert parse(f"2024-12-31T23:30:00Z {failed}").assumed_year is None
    assert parse(f"Dec 31 23:30:00 {failed}").assumed_year == 2025
    assert parse(f"Dec 31 23:30:00 {failed}", year=2025).assumed_year is None


def test_addresses_are_values_not_text() -> None:
    """Two spellings of one address are one client."""
    line = "Dec 10 06:00:00 gate sshd[1]: Failed password for a from {} port 2"
    log = parse(
        line.format("2001:db8::1"), line.format("2001:DB8:0::0:1"), line.format("192.0.2.1")
    )
    assert {one.client for one in log.sign_ins} == {
        IPv6Address("2001:db8::1"),
        IPv4Address("192.0.2.1"),
    }


_piece = st.sampled_from(
    [
        "Dec 10 06:55:46 ", "Feb 29 00:00:60 ", "Jan 99 23:59:59 ", "2024-02-30T00:00:00Z ", "h ",
        "sshd[1]: ", "Failed password for ", "invalid user ", "root", " from ", "192.0.2.1", "::1%",
        " port 22", " ssh2", "message repeated 0 times: [ ", "last message repeated 3 times", "]",
        "9999-12-31T23:59:59-23:59 ", "0000-01-01T00:00:00Z ", "٣", "\x00", "\ud800",
    ]
)  # fmt: skip


@settings(deadline=None)  # the cores are shared
@given(st.lists(st.one_of(st.text(), st.lists(_piece).map("".join)), max_size=20))
def test_any_text_is_read_without_an_error(lines: list[str]) -> None:
    """Whatever the lines hold, each is counted once, and tries come out in order of time."""
    log = parse(*lines)
    assert log.lines == len(lines) == len(log.sign_ins) + log.other_lines + log.damaged_lines
    assert all(one.at_ms >= 0 and one.times >= 1 for one in log.sign_ins)
    assert list(log.sign_ins) == sorted(log.sign_ins, key=lambda one: one.at_ms)


FAILED = b"Dec 10 06:55:46 gate sshd[1]: Failed password for a from 192.0.2.1 port 2 ssh2\r\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\n\n", "no line in its syslog form"),
        (b"a,b,c\n1,2,3\n", "no line in its syslog form"),
        (b"Dec 10 06:55:46 gate cron[1]: tick\n", "no line in its syslog form"),
        (FAILED + b"\x00\x00", "is binary"),
        (b"x" * 70_000 + b"\x00", "is binary"),
        (FAILED.decode().encode("utf-16"), "is binary"),
        (b"\xff\xfe\xfa\n\x80\n", "bytes that aren't UTF-8"),
    ],
)
def test_a_file_that_is_no_sshd_log_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    """One line names the file, what is wrong and what to do."""
    path = tmp_path / "some.log"
    path.write_bytes(content)
    with pytest.raises(UnreadableLogError) as caught:
        read_sshd_log(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    """Neither is a traceback."""
    with pytest.raises(UnreadableLogError, match=r"no\.log: no such file; name an sshd log"):
        read_sshd_log(tmp_path / "no.log")
    with pytest.raises(UnreadableLogError, match="is a directory; name one log file"):
        read_sshd_log(tmp_path)


def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    """A log this user may not read is refused with the system's reason."""
    path = tmp_path / "auth.log"
    path.write_bytes(FAILED)
    path.chmod(0)
    was_root = os.geteuid() == 0
    if was_root:  # root may read anything: ask as nobody
        os.seteuid(65534)
    try:
        with pytest.raises(UnreadableLogError, match=r"can't be read \(Permission denied\)"):
            read_sshd_log(path)
    finally:
        if was_root:
            os.seteuid(0)


def test_a_read_error_in_the_middle_is_told() -> None:
    """A file that opens but fails to read is refused with the system's reason."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs /proc/self/mem, whose first page can't be read")
    with pytest.raises(UnreadableLogError, match=r"can't be read \(.+\)"):
        read_sshd_log("/proc/self/mem")


def test_a_year_without_its_leap_day_is_refused(tmp_path: Path) -> None:
    """--year that contradicts the log is wrong use, not a lost line."""
    path = tmp_path / "auth.log"
    path.write_bytes(FAILED.replace(b"Dec 10", b"Feb 29"))
    with pytest.raises(
        UnreadableLogError, match=r"29 February.* 2023; give --year a year that fits"
    ):
        read_sshd_log(path, year=2023)
    (sign_in,) = read_sshd_log(path, year=2020).sign_ins
    assert datetime.fromtimestamp(sign_in.at_ms / 1000, UTC).date() == date(2020, 2, 29)


def test_foreign_bytes_and_endless_lines_hide_nothing(tmp_path: Path) -> None:
    """Another program's odd bytes or its 200 KB line cost none of sshd's lines."""
    path = tmp_path / "auth.log"
    path.write_bytes(b"\xef\xbb\xbf" + FAILED + b"\xe9\n" + b"x" * 200_000 + b"\n" + FAILED[:-2])
    log = read_sshd_log(path)
    assert (len(log.sign_ins), log.lines, log.other_lines) == (2, 4, 2)


def test_the_tail_of_an_endless_line_is_no_line(tmp_path: Path) -> None:
    """Text pushed past the length bound can't pose as a line of sshd's."""
    path = tmp_path / "auth.log"
    path.write_bytes(FAILED + b"x" * 65_536 + FAILED)
    log = read_sshd_log(path)
    assert (len(log.sign_ins), log.lines) == (1, 2)


def test_the_files_date_gives_the_year(tmp_path: Path) -> None:
    """A log last written in early 2021 whose line says December is of 2020."""
    path = tmp_path / "auth.log"
    path.write_bytes(FAILED)
    written = datetime(2021, 1, 5, tzinfo=UTC).timestamp()
    os.utime(path, (written, written))
    assert read_sshd_log(path).assumed_year == 2020


@pytest.mark.skipif(
    not REAL_LOG.is_file(),
    reason=f"THE REAL SSHD LOG IS NOT HERE ({REAL_LOG}): its numbers were NOT checked",
)
def test_the_real_log_gives_its_known_numbers() -> None:
    """528 failures (two lines stand for five each) on 63 names from 23 addresses, 1 success."""
    log = read_sshd_log(REAL_LOG)
    failures = [one for one in log.sign_ins if not one.succeeded]
    assert sum(one.times for one in failures) == 528
    assert sorted(one.times for one in failures)[-3:] == [1, 5, 5]
    assert len({one.client for one in failures}) == 23
    assert len({one.account for one in failures}) == 63
    assert " 0101" in {one.account for one in failures}
    assert [one.times for one in log.sign_ins if one.succeeded] == [1]
    assert (log.lines, log.other_lines, log.damaged_lines) == (2000, 1479, 0)
