"""
Any forwarding header: an address, nothing, or our own refusal; and the sender never chooses which.

What a client sends itself stands left of what our proxies append. So whatever that text holds, the
answer must be that of the proxies' part alone.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from werkzeug.datastructures import EnvironHeaders

from authguard.errors import InvalidInput
from authguard.flask.client_address import UNIX, Proxies, client_address
from authguard.identity.addresses import read_address, read_networks
from authguard.identity.forwarded import FORWARDED, X_FORWARDED_FOR, originator
from tests.fuzz.conftest import fuzzed, mostly

ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address)

ONE_ADDRESS = "CF-Connecting-IP"
TRUSTED = ["10.0.0.0/30", "2001:db8:ffff::/64"]
OURS = read_networks(TRUSTED, "ours")

names = st.sampled_from([X_FORWARDED_FOR, FORWARDED, "forwarded", ONE_ADDRESS])

#: Addresses as text: anybody's, of which some carry an IPv4 one, and our own proxies'.
anybody = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.ip_addresses(v=4).map(lambda ip: f"::ffff:{ip}"),
    st.ip_addresses(v=4).map(lambda ip: f"64:ff9b::{ip}"),
    st.ip_addresses(v=4).map(lambda ip: f"2002:{int(ip) >> 16:x}:{int(ip) & 0xFFFF:x}::1"),
)
proxy = st.sampled_from(["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3", "2001:db8:ffff::2"])
client = anybody.filter(lambda text: read_address(text) not in OURS)

#: Text made of what the grammars are made of, and any text at all.
crumbs = st.sampled_from(
    [
        *("for=", "For =", "for", "by=", "host=", "proto=https", "_", "_hidden", "unknown"),
        *("=", ";", ",", ", ", '"', '\\"', "\\", "\\\\", " ", "\t", "\x00", "\x85", "\xff", "\xb2"),
        *("[", "]", ":", "::", ":443", ":_p", "%", "%eth0", "6.6.6.6", "10.0.0.1", "2001:db8::6"),
        'for="[2001:db8::6]:1"',
    ]
)
forged = st.sampled_from(
    [";for=6.6.6.6", ", for=6.6.6.6", '";for=6.6.6.6;x="', '", for=6.6.6.6;x="', '\\", for="[::6]']
)
scraps = st.lists(st.one_of(crumbs, forged, anybody, proxy, st.text(max_size=3)), max_size=30).map(
    "".join
)
long_ones = st.builds(lambda text, times: text * times, scraps, st.integers(2, 300))
junk = mostly(scraps, st.one_of(st.text(), long_ones))


@st.composite
def quoted(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """Quote a text as a proxy must; it may escape more than it has to."""
    every = draw(st.booleans())
    text = "".join(f"\\{each}" if every or each in '"\\' else each for each in draw(texts))
    return f'"{text}"'


#: What a client can have put into Host, which a proxy repeats, well quoted; no element gets longer
#: than the reader takes.
hosts = quoted(st.lists(crumbs | forged | st.text("ab", max_size=9), max_size=6).map("".join))
ports = st.sampled_from(["", ":0", ":65535", ":_hidden"])


@st.composite
def node(draw: st.DrawFn, address: str) -> str:
    """Write an address as a proxy does: by itself, or in brackets, with or without a port."""
    port = draw(ports)
    if ":" in address:
        return f"[{address}]{port}" if port or draw(st.booleans()) else address
    return f"{address}{port}"


@st.composite
def element(draw: st.DrawFn, address: str) -> str:
    """Write an element of Forwarded as a proxy does: a ``for``, and what else it likes."""
    text = f"[{address}]{draw(ports)}" if ":" in address else f"{address}{draw(ports)}"
    if ":" in text or draw(st.booleans()):
        text = draw(quoted(st.just(text)))
    pairs = [f"{draw(st.sampled_from(['for', 'For', 'FOR']))}={text}"]
    more = {"proto": st.just("https"), "by": st.just('"_gate"'), "host": hosts, "secret": hosts}
    chosen = draw(st.lists(st.sampled_from(sorted(more)), unique=True))
    pairs.extend(f"{name}={draw(more[name])}" for name in chosen)
    return ";".join(draw(st.permutations(pairs)))


@dataclass(frozen=True)
class Sent:
    """A header as it arrives: what the client sent, and what our proxies appended."""

    name: str
    by_client: str
    by_proxies: str
    client: str


@st.composite
def passed_on(draw: st.DrawFn) -> Sent:
    """Draw a header that came through one to four proxies of ours."""
    name, address = draw(st.sampled_from([X_FORWARDED_FOR, FORWARDED])), draw(client)
    write = node if name == X_FORWARDED_FOR else element
    hops = [address, *draw(st.lists(proxy, max_size=3))]
    items = [draw(write(hop)) for hop in hops]
    return Sent(name, draw(junk), draw(st.sampled_from([", ", ","])).join(items), address)


@fuzzed(quick=300, deep=5_000, sent=passed_on())
def test_what_the_client_sent_never_matters(sent: Sent) -> None:
    """A02: whatever text stands left of what our proxies wrote, the answer is what they wrote."""
    expected = read_address(sent.client)
    assert originator(sent.name, sent.by_proxies, OURS) == expected
    assert originator(sent.name, f"{sent.by_client}, {sent.by_proxies}", OURS) == expected
    assert originator(sent.name, f"{sent.by_client},{sent.by_proxies}", OURS) == expected


@fuzzed(quick=200, deep=10_000, name=names, value=junk)
def test_any_header_gives_an_address_or_nothing(name: str, value: str) -> None:
    """Whatever a header holds, what is read is one address without its zone, or None."""
    found = originator(name, value, OURS)
    assert found is None or (isinstance(found, ADDRESSES) and "%" not in str(found))


peers = st.one_of(st.none(), anybody, proxy, scraps, st.just("unix:"))


def headers(**lines: str) -> EnvironHeaders:
    """Give the headers of a request as WSGI does, which checks nothing."""
    return EnvironHeaders({f"HTTP_{name.upper().replace('-', '_')}": lines[name] for name in lines})


@fuzzed(quick=200, deep=5_000, peer=peers, name=names, value=st.none() | junk, unix=st.booleans())
def test_any_request_has_one_address_or_is_refused(
    peer: str | None, name: str, value: str | None, *, unix: bool
) -> None:
    """Whatever the peer and its header are, the client is an address, or the request is refused."""
    proxies = Proxies.of([*TRUSTED, UNIX] if unix else TRUSTED, name, "trusted")
    sent = headers() if value is None else headers(**{name: value})
    try:
        found = client_address(peer, sent, proxies)
    except InvalidInput:
        assert not (unix and peer in (None, "", UNIX))
    else:
        assert isinstance(found, ADDRESSES)


honest = client | passed_on().map(lambda sent: sent.by_proxies)


@fuzzed(quick=200, deep=5_000, peer=client, declared=names, sent=names, value=honest | junk)
def test_nobody_elses_header_is_believed(peer: str, declared: str, sent: str, value: str) -> None:
    """A01: from a peer that is none of our proxies, no header whatever changes the address."""
    proxies = Proxies.of(TRUSTED, declared, "trusted")
    assert client_address(peer, headers(**{sent: value}), proxies) == read_address(peer)


@fuzzed(quick=100, deep=1_500, sent=passed_on(), others=junk)
def test_no_other_header_is_read(sent: Sent, others: str) -> None:
    """A04: a header that is not the declared one never matters, whatever it holds."""
    lines = dict.fromkeys([X_FORWARDED_FOR, FORWARDED, ONE_ADDRESS, "X-Real-IP"], others)
    lines[sent.name] = f"{sent.by_client}, {sent.by_proxies}"
    proxies = Proxies.of(TRUSTED, sent.name, "trusted")
    assert client_address("10.0.0.1", headers(**lines), proxies) == read_address(sent.client)


#: How a header begins, and what it repeats to its end.
LONG = {
    "": (" ", ",", ";", ":", "[", "]", '"', "\\", "=", "1", "1.", "a=", "a,", "a;", ' ,x=";'),
    "[": (":", "a", "%", "::1%"),
    'for="': (":", ",", ";", "\\", '\\"', ",for=", ",a=;", ',a=";', '=",'),
    "for=10.0.0.1,": ("for=10.0.0.1,", 'for=10.0.0.1;x=",",', 'for="'),
    "10.0.0.1": (",10.0.0.1", ","),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("head", "part"), [(head, part) for head in LONG for part in LONG[head]])
def test_a_long_header_is_read_to_its_end(head: str, part: str) -> None:
    """A MiB of anything is read at once; what takes the square of its length would never end."""
    value = head + part * (1_048_576 // len(part))
    for name in (X_FORWARDED_FOR, FORWARDED, ONE_ADDRESS):
        assert str(originator(name, value, OURS)) in ("None", "10.0.0.1")
