"""Broken requests: 400, 413 or 415, never 500; the client pays, no account and no hash does."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.exceptions import BadRequest

    from tests.flask.conftest import Site

RIGHT = {"identifier": "vera", "password": "right vera"}
JSON = {"content_type": "application/json"}
FORM = {"content_type": "application/x-www-form-urlencoded"}

BROKEN = {
    "empty": {"data": b""},
    "empty JSON": {"data": b"", **JSON},
    "empty form": {"data": b"", **FORM},
    "null": {"data": b"null", **JSON},
    "list": {"data": b"[]", **JSON},
    "number": {"data": b"5", **JSON},
    "text": {"data": b'"vera"', **JSON},
    "cut off": {"data": b'{"identifier": "vera", ', **JSON},
    "no UTF-8": {"data": b'{"identifier": "\xff", "password": "x"}', **JSON},
    "UTF-16": {"data": json.dumps(RIGHT).encode("utf-16"), **JSON},
    "deep": {"data": b"[" * 16_000, **JSON},
    "deep inside": {"data": b'{"identifier":"vera","password":' + b'{"a":' * 3000, **JSON},
    "long number": {"data": b'{"identifier":"vera","password":' + b"9" * 5000 + b"}", **JSON},
    "NaN": {"data": b'{"identifier": "vera", "password": NaN}', **JSON},
    "duplicate keys": {
        "data": b'{"identifier":"omar","identifier":"vera","password":"right vera"}',
        **JSON,
    },
    "escaped duplicate": {
        "data": b'{"identifier":"omar","\\u0069dentifier":"vera","password":"right vera"}',
        **JSON,
    },
    "name missing": {"json": {"password": "right vera"}},
    "name empty": {"json": RIGHT | {"identifier": ""}},
    "name blank": {"json": RIGHT | {"identifier": " \t "}},
    "name null": {"json": RIGHT | {"identifier": None}},
    "name list": {"json": RIGHT | {"identifier": ["vera"]}},
    "name object": {"json": RIGHT | {"identifier": {"a": "vera"}}},
    "name number": {"json": RIGHT | {"identifier": 7}},
    "name true": {"json": RIGHT | {"identifier": True}},
    "name too long": {"json": RIGHT | {"identifier": "v" * 255}},
    "name expanding": {"json": RIGHT | {"identifier": "\ufdfa" * 254}},
    "name NUL": {"json": RIGHT | {"identifier": "vera\0"}},
    "name invisible": {"json": RIGHT | {"identifier": "ve\u200bra"}},
    "name surrogate": {"data": b'{"identifier":"\\ud800","password":"x"}', **JSON},
    "password missing": {"json": {"identifier": "vera"}},
    "password empty": {"json": RIGHT | {"password": ""}},
    "password null": {"json": RIGHT | {"password": None}},
    "password number": {"json": RIGHT | {"password": 12345678}},
    "password list": {"json": RIGHT | {"password": ["a", "b", "right vera"]}},
    "password too long": {"json": RIGHT | {"password": "x" * 1025}},
    "password too long in bytes": {"json": RIGHT | {"password": "ä" * 513}},
    "password surrogate": {"data": b'{"identifier":"vera","password":"\\udfff"}', **JSON},
    "form name twice": {"data": "identifier=omar&identifier=vera&password=right+vera", **FORM},
    "form password twice": {"data": "identifier=vera&password=a&password=right+vera", **FORM},
    "form password array": {"data": "identifier=vera&password[]=a&password[]=b", **FORM},
    "form no UTF-8": {"data": b"identifier=\xff\xfe&password=x", **FORM},
    "multipart without end": {
        "data": b'--x\r\nContent-Disposition: form-data; name="identifier"\r\n\r\nvera',
        "content_type": "multipart/form-data; boundary=x",
    },
    "password as file": {
        "data": {"identifier": "vera", "password": (io.BytesIO(b"right vera"), "p.txt")}
    },
    "conflict": {"json": RIGHT, "query_string": {"identifier": "omar"}},
    "query twice": {"json": RIGHT, "query_string": "identifier=vera&identifier=vera"},
    "only in the query": {"query_string": RIGHT},
}


def chunked(body: bytes) -> dict[str, Any]:
    """Give a JSON request as a server hands over one that came in chunks."""
    environ = {
        "wsgi.input": io.BytesIO(body),
        "wsgi.input_terminated": True,
        "HTTP_TRANSFER_ENCODING": "chunked",
    }
    return {"environ_overrides": environ, **JSON}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_request(site: Site, name: str) -> None:
    """B158, A25 to A27, A41: answered 400; the client is charged, no account is, nothing hashed."""
    answer = site.post(headers={"Accept": "application/json"}, **BROKEN[name])
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    assert (answer.json or {}).keys() == {"type", "title", "status", "detail"}
    assert "right vera" not in answer.text
    assert site.spy.checks == []
    assert [site.used(), site.used(key="key-2")] == [0, 0]
    assert site.used("client") == 1


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/xml", "application/octet-stream"]
)
def test_other_media_types(site: Site, media_type: str) -> None:
    """B158: what is neither form nor JSON is 415, also if its content would parse."""
    answer = site.post(data=json.dumps(RIGHT), content_type=media_type)
    assert (answer.status_code, answer.mimetype) == (415, "text/html")
    assert site.spy.checks == []
    assert site.used("client") == 1


def test_json_without_its_media_type(site: Site) -> None:
    """A body that does not say what it is is 415."""
    assert site.post(data=json.dumps(RIGHT)).status_code == 415


@pytest.mark.parametrize("kind", ["json", "form", "chunked"])
def test_long_body(site: Site, kind: str) -> None:
    """A98: a body over 16 KiB is 413 before it is read, chunked or with its length declared."""
    body = b'{"identifier":"vera","password":"' + b"x" * 17_000 + b'"}'
    how: dict[str, Any] = {"data": body, **(FORM if kind == "form" else JSON)}
    if kind == "chunked":
        how = chunked(body)
    answer = site.post(**how)
    assert answer.status_code == 413
    assert site.spy.checks == []
    assert site.used("client") == 1


def test_app_may_allow_less(site_factory: Callable[..., Site]) -> None:
    """A lower MAX_CONTENT_LENGTH of the app holds, also for a chunked body."""
    site = site_factory(MAX_CONTENT_LENGTH=40)
    body = json.dumps(RIGHT).encode()
    assert len(body) > 40
    assert site.post(data=body, **JSON).status_code == 413
    assert site.post(**chunked(body)).status_code == 413


def test_long_body_and_a_full_client_log(site: Site) -> None:
    """A long form gets its 413 as a page, and a 429 page once its client has used up its tries."""
    body = b"identifier=vera&password=" + b"x" * 17_000
    assert [site.post(data=body, **FORM).status_code for _ in range(21)] == [413] * 20 + [429]


def test_chunked_body_is_read(site: Site) -> None:
    """A short chunked body is a request like any other."""
    assert site.post(**chunked(json.dumps(RIGHT).encode())).status_code == 200
    padded = json.dumps(RIGHT | {"more": ""}).encode()
    longest = padded.replace(b'"more": "', b'"more": "' + b"x" * (16_384 - len(padded)))
    assert site.post(**chunked(longest)).status_code == 200
    assert site.post(**chunked(longest + b" ")).status_code == 413


def test_client_that_hangs_up(site: Site) -> None:
    """A body that ends before its declared length, or whose stream fails, is 400, not 500."""
    cut = site.post(input_stream=io.BytesIO(b'{"ident'), content_length=500, **JSON)
    assert cut.status_code == 400

    class Broken(io.RawIOBase):
        def readinto(self, _buffer: object) -> int:
            raise OSError("bad chunk")

    how = chunked(b"")
    how["environ_overrides"]["wsgi.input"] = Broken()
    broken = site.post(**how)
    assert broken.status_code == 400


class BadChunk(Exception):
    """What a server raises for chunks that are none."""


@pytest.mark.parametrize("kind", [JSON, FORM])
def test_a_server_that_cannot_read_on(site: Site, kind: dict[str, Any]) -> None:
    """Whatever the server's stream raises for broken chunks is 400 for its client, not 500."""

    class Broken(io.RawIOBase):
        def readinto(self, _buffer: object) -> int:
            raise BadChunk

    how = chunked(b"") | kind
    how["environ_overrides"]["wsgi.input"] = Broken()
    assert site.post(**how).status_code == 400
    assert site.used("client") == 1


def test_a_query_that_is_no_utf8(site: Site) -> None:
    """Raw bytes in the query are 400 for their client, not 500."""
    environ = {"QUERY_STRING": "a=\xff"}
    assert site.post(json=RIGHT, environ_overrides=environ).status_code == 400
    assert [site.used("client"), site.spy.checks] == [1, []]


def test_no_error_holds_what_was_sent(site: Site) -> None:
    """B145: what stands behind a refusal, as an app's error tool shows it, holds no password."""
    caught: list[BaseException] = []

    def note(error: BadRequest) -> BadRequest:
        caught.append(error)
        return error

    site.app.register_error_handler(400, note)
    site.post(data=b'{"identifier": "vera", "password": "right vera", ', **JSON)
    site.post(data=b'{"identifier": "vera\xff", "password": "right vera"}', **JSON)
    site.login("vera\u200b right vera")
    assert len(caught) == 3
    for error in caught:
        behind: BaseException | None = error
        while behind is not None:
            assert "right vera" not in repr(vars(behind)) + str(behind)
            assert "right vera" not in repr(getattr(behind, "doc", ""))
            assert "right vera" not in repr(getattr(behind, "object", ""))
            behind = behind.__cause__ or behind.__context__


def test_multipart_form(site: Site) -> None:
    """A form sent as multipart is a form."""
    how = {"data": RIGHT, "content_type": "multipart/form-data"}
    assert site.post(**how).status_code == 303


def test_broken_ones_lock_nobody_out(site: Site) -> None:
    """B158: ten malformed bodies, and the right password from the same address signs in."""
    for name in list(BROKEN)[:10]:
        assert site.post(**BROKEN[name]).status_code == 400
    assert site.login("vera", "right vera").status_code == 200


def test_missing_names_share_no_key(site_factory: Callable[..., Site]) -> None:
    """A25: requests without a name use up nobody's tries but their address's."""
    site = site_factory(AUTHGUARD_POLICY=None)
    for _ in range(30):
        assert site.post(data={"password": "x"}).status_code == 400
    assert site.post(data={"password": "x"}).status_code == 429
    assert site.login("vera", "right vera", client="198.51.100.7").status_code == 200
    assert site.post(data={"password": "x"}, client="198.51.100.7").status_code == 400


def test_name_is_refused_before_the_accounts_see_it(site: Site) -> None:
    """A name that can't be one never reaches the app's own look-up."""
    site.login("vera\0")
    site.login("v" * 300)
    assert site.people.asked == []


def test_longest_password_is_checked_whole(site: Site) -> None:
    """A password of exactly 1,024 bytes after normalising is hashed like any other."""
    assert site.login("vera", "x" * 1024).status_code == 401
    assert site.login("vera", "e\u0301" * 512).status_code == 401  # NFC: 512 letters of 2 bytes
    assert len(site.spy.checks) == 2


def test_policy_without_a_client_limit(site_factory: Callable[..., Site]) -> None:
    """Where no limit counts by client a malformed request is 400 all the same, and free."""
    site = site_factory(limits=[{"name": "account", "by": ["account"], "sliding_log": "5/300s"}])
    assert [site.post(json={}).status_code for _ in range(30)] == [400] * 30
    assert site.login("vera", "right vera").status_code == 200
