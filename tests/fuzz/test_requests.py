"""
Any request: a name and a password that can be used, or our own refusal; never another error.

Nearly right bodies of all three kinds, cut and changed, under right, odd and wrong descriptions of
themselves, from streams that break off.
"""

from __future__ import annotations

import io
import json
import unicodedata
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

from flask import Request
from hypothesis import strategies as st
from werkzeug.test import create_environ, run_wsgi_app

from authguard.errors import InvalidInput
from authguard.flask.fields import read_credentials, read_text, typed_text
from tests.fuzz.conftest import fuzzed, mostly

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.flask.conftest import Site

#: Stands in drawn values, and must stand in no message.
CANARY: Final = "0canary0"

JSON: Final = "application/json"
URLENCODED: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"

fields = st.sampled_from(["identifier", "password"])
words = st.sampled_from(
    [
        *("vera", "right vera", "wrong", f"{CANARY}!", "", " ", "\0", "v\u200bra", "x\ud800"),
        *("x" * 1024, "\u00e9" * 512, "\u00e9" * 513),
    ]
)
values = mostly(words, st.text())


@st.composite
def both(draw: st.DrawFn, name: Callable[[str], str], value: st.SearchStrategy[str]) -> list[Any]:
    """Draw both fields, in any order."""
    pairs = [(name(field), draw(value)) for field in ("identifier", "password")]
    return pairs[:: draw(st.sampled_from([1, -1]))]


# JSON as it stands on the wire, since a serializer would never write most of this.
spelt = st.sampled_from(
    [
        *('"identifier"', '"\\u0069dentifier"', '"password"', '"pass\\u0077ord"'),
        *("identifier", '""', "1"),
    ]
)
literals = st.one_of(
    st.sampled_from(['"vera"', '"right vera"', f'"{CANARY}"', '["vera"]', '{"identifier":"vera"}']),
    st.sampled_from(["null", "true", "NaN", "-Infinity", "1e999", "-0", "01", "'vera'", "", "[]"]),
    st.sampled_from(['"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\t"', '"\\', "\ufeff"]),
    st.sampled_from(
        ["9" * 5_000, "-" + "9" * 5_000, '"' + "x" * 1025 + '"', "[" * 500 + "]" * 500]
    ),
    st.sampled_from(["[" * 5_000, '{"a":' * 3_000, '{"a":' * 900 + "1" + "}" * 900]),
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """Write JSON that is nearly right, in nearly any encoding."""
    value = mostly(values.map(json.dumps), literals)
    odd = st.lists(st.tuples(spelt, value), max_size=4)
    members = draw(mostly(both(json.dumps, value), odd))
    inside = ",".join(f"{name}:{value}" for name, value in members)
    text = draw(mostly(st.just(f"{{{inside}}}"), literals))
    encodings = st.sampled_from(["utf-8-sig", "utf-16", "utf-32-le", "latin-1"])
    return text.encode(draw(mostly(st.just("utf-8"), encodings)), "replace")


escapes = st.sampled_from(
    ["%", "%4", "%zz", "%00", "%ff", "%ed%a0%80", "%u0069", "+", "=", "&", ";", "\x80"]
)


@st.composite
def urlencoded(draw: st.DrawFn) -> bytes:
    """Write a form, or a query, that is nearly right."""
    value = mostly(values.map(lambda text: quote_plus(text, errors="replace")), escapes)
    name = st.one_of(fields, st.sampled_from(["%69dentifier", "password[]", "", "a"]), escapes)
    pairs = draw(mostly(both(quote, value), st.lists(st.tuples(name, value), max_size=4)))
    text = "&".join(f"{name}={value}" for name, value in pairs)
    return draw(mostly(st.just(text), escapes)).encode(draw(st.sampled_from(["utf-8", "latin-1"])))


described = st.sampled_from(
    [
        *('form-data; name="password"; filename="p"', "form-data", "", '"', "a; name=identifier"),
        *("form-data; name*=utf-8''identifier", "form-data; name*=x''%ff; name=password"),
        *("form-data; name*0=iden; name*1=tifier", "form-data; name=password; name=identifier"),
    ]
)
part_fields = st.sampled_from(
    [
        *("Content-Length: -1\r\n", "X\r\n", " folded\r\n", "Content-Type: x; charset=\r\n"),
        *(f"Content-Type: text/plain; charset={name}\r\n" for name in ("utf-7", "iso-8859-1")),
    ]
)


@st.composite
def multipart(draw: st.DrawFn, boundary: str) -> bytes:
    """Write a multipart form that is nearly right, and nearly ends."""
    pairs = both('form-data; name="{}"'.format, values)
    odd = st.lists(st.tuples(described, values), max_size=4)
    parts = [
        f"--{boundary}\r\nContent-Disposition: {name}\r\n"
        f"{draw(mostly(st.just(''), part_fields))}\r\n{value}\r\n"
        for name, value in draw(mostly(pairs, odd))
    ]
    end = draw(mostly(st.just(f"--{boundary}--\r\n"), st.sampled_from(["", "--", "\r\n"])))
    return "".join([*parts, end]).encode("utf-8", "replace")


pieces = st.one_of(
    st.binary(max_size=4), st.sampled_from([b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b'"'])
)


@st.composite
def changed(draw: st.DrawFn, raw: bytes) -> bytes:
    """Leave a body as it is; or cut pieces out of it, put others in, or cut it off."""
    for _ in range(draw(mostly(st.just(0), st.integers(1, 3)))):
        start, length = draw(st.integers(0, len(raw))), draw(st.integers(0, 8))
        raw = raw[:start] + draw(pieces) + raw[start + length :]
    end = draw(mostly(st.just(len(raw)), st.integers(0, len(raw))))
    return raw[:end] + draw(st.sampled_from([b""] * 20 + [b" " * 17_000]))


boundaries = mostly(st.just("x"), st.sampled_from(["--", "a b", "x" * 300, "\u00e9", "", "x\r\ny"]))
parameters = mostly(
    st.just(""),
    st.sampled_from(
        ["; charset=utf-16", "; charset=no", "; charset=", ";", "; boundary", '; a="', "; =;"]
    ),
)
other_types = st.one_of(
    st.sampled_from(
        ["", "text/plain", "application/problem+json", "application/+json", "json", "/"]
    ),
    st.text(st.characters(max_codepoint=255, exclude_characters="\r\n")),
)


class Breaking(io.RawIOBase):
    """A stream that ends in an error, as when a client goes away or a server dislikes a chunk."""

    def __init__(self, body: bytes, error: Exception) -> None:
        self._rest = io.BytesIO(body)
        self._error = error

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Give what there is, then the error."""
        given = self._rest.readinto(buffer)
        if not given:
            raise self._error
        return given


class ParseException(Exception):
    """What gunicorn raises for a broken chunk or trailer: its own, and no OSError."""


errors = st.sampled_from(
    [
        *(OSError("gone"), TimeoutError(), ConnectionResetError(), EOFError()),
        *(ValueError("I/O operation on closed file"), ParseException("Invalid chunk size: 'zz'")),
    ]
)


class Sent(Request):
    """A request whose files stay in memory: werkzeug leaves those of a broken form open."""

    def _get_file_stream(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO()


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a server hands over: the environ of one request."""
    kind, boundary = draw(st.sampled_from([JSON, URLENCODED, MULTIPART])), draw(boundaries)
    bodies = {JSON: json_texts(), URLENCODED: urlencoded(), MULTIPART: multipart(boundary)}
    body = draw(changed(draw(bodies[kind])))
    right = kind + draw(parameters) + (f"; boundary={boundary}" if kind == MULTIPART else "")
    content_type = draw(mostly(st.just(right), other_types))
    query = draw(mostly(st.just(b""), st.one_of(urlencoded(), st.binary(max_size=20))))
    accept = st.sampled_from(["*/*", JSON, "text/html", ";q=x", "\xff/\xff", ""])
    stream = draw(
        mostly(st.builds(io.BytesIO, st.just(body)), st.builds(Breaking, st.just(body), errors))
    )
    environ = {
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": content_type.encode("utf-8", "replace").decode("latin-1"),
        "QUERY_STRING": query.decode("latin-1"),
        "HTTP_ACCEPT": draw(accept),
        "wsgi.input": stream,
    }
    if draw(st.booleans()):
        return environ | {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    near = st.sampled_from([-5, -1, 1, 5]).map(lambda by: str(len(body) + by))
    far = st.sampled_from(["", "-1", "x", "\xb2", "0", "9" * 30])
    return environ | {"CONTENT_LENGTH": draw(mostly(st.just(str(len(body))), st.one_of(near, far)))}


def is_usable(text: str) -> bool:
    """Tell whether a text holds something, and can be written down."""
    return isinstance(text, str) and bool(text) and text.encode().decode() == text


def read_or_refuse(read: Callable[[], Any]) -> Any:
    """Give what is read; None if it is refused, by our own error, which shows nothing of it."""
    try:
        return read()
    except InvalidInput as error:
        message = str(error)
    assert CANARY not in message
    return None


@fuzzed(quick=150, deep=6_000, environ=requests())
def test_any_request_holds_credentials_or_is_refused(environ: dict[str, Any]) -> None:
    """Whatever is sent, name and password are whole, short enough and Unicode, or it is refused."""
    request = Sent(create_environ() | environ)
    found = read_or_refuse(lambda: read_credentials(request))
    if found is not None:
        identifier, password = found
        assert is_usable(identifier)
        assert is_usable(password)
        assert len(unicodedata.normalize("NFC", password).encode()) <= 1024
    shown = typed_text(request, "identifier")
    assert shown == "" or is_usable(shown)


@fuzzed(quick=300, deep=6_000, environ=requests(), name=st.one_of(fields, st.text()))
def test_any_request_holds_a_field_or_is_refused(environ: dict[str, Any], name: str) -> None:
    """Whatever is sent and asked for, a field of body or query is text with content, or refused."""
    request = Sent(create_environ() | environ)
    found = read_or_refuse(lambda: read_text(request, name))
    assert found is None or is_usable(found)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=250)


@fuzzed(
    quick=300, deep=10_000, sent=st.fixed_dictionaries({"identifier": texts, "password": texts})
)
def test_what_is_sent_right_is_read_right(sent: dict[str, str]) -> None:
    """Any name and password come through letter by letter, as JSON, as a form, and as multipart."""
    bodies = {
        JSON: [json.dumps(sent), json.dumps(sent, ensure_ascii=False, indent=1)],
        URLENCODED: ["&".join(f"{name}={quote(sent[name])}" for name in sent)],
        f"{MULTIPART}; boundary=0x0": [
            "".join(
                f'--0x0\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                for name, value in sent.items()
            )
            + "--0x0--\r\n"
        ],
    }
    for kind, ways in bodies.items():
        for body in ways:
            request = Sent(create_environ(method="POST", data=body.encode(), content_type=kind))
            assert read_credentials(request) == (sent["identifier"], sent["password"])


@fuzzed(quick=200, deep=3_000, environ=requests())
def test_any_request_is_answered(site: Site, clock: Clock, environ: dict[str, Any]) -> None:
    """Whatever is posted is answered, never by 500, and what is malformed costs no hash."""
    site.app.request_class = Sent
    site.spy.checks.clear()
    clock.advance(3_600_000)  # nobody is locked out, so that a right one gets through
    whole = create_environ("/auth/login", environ_base={"REMOTE_ADDR": site.home}) | environ
    _, status, _ = run_wsgi_app(site.app, whole, buffered=True)
    assert status[:3] in ("200", "303", "400", "401", "413", "415", "429")
    assert len(site.spy.checks) == (status[:3] in ("200", "303", "401"))
