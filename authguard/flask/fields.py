"""
The one reader of credentials: form or JSON, one text for each field, or a clear refusal.

Whatever two readers could understand differently (a field given twice, duplicate keys, a value
in the body and another in the query) is refused, so that the limit counts the name that the
password check uses.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NoReturn

from flask import Request as FlaskRequest
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.formparser import FormDataParser

from authguard._password_bytes import password_bytes
from authguard.checks import is_unicode
from authguard.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Request

__all__ = [
    "BODY_BYTES",
    "TooLarge",
    "WrongMediaType",
    "has_body",
    "in_query",
    "read_credentials",
    "read_fields",
    "read_optional",
    "read_text",
    "typed_text",
]

#: Longest body read. A name, a password and their field names fit many times over.
BODY_BYTES: Final = 16 * 1024

_FORM: Final = "application/x-www-form-urlencoded"
_FORMS: Final = frozenset({_FORM, "multipart/form-data"})

#: What a request reads its form by. Used itself: what a request sets up for it takes longer than
#: the reading, and a refused request needs its form for nothing else.
_PARSER: Final = FormDataParser()


class TooLarge(InvalidInput):
    """The body is longer than is ever read here: HTTP 413."""


class WrongMediaType(InvalidInput):
    """The body is neither a form nor JSON: HTTP 415."""


def read_credentials(request: Request) -> tuple[str, str]:
    """
    Return the fields ``identifier`` and ``password`` of the body.

    Raises:
        InvalidInput: Either is missing, empty, no text, given twice or contradicted by the
            query, or the password is over its cap; no hash was computed.
    """
    identifier, password = read_fields(request, "identifier", "password")
    password_bytes(password)  # refused here, before anything is reserved
    return identifier, password


def read_fields(request: Request, *names: str) -> list[str]:
    """
    Return several fields of the body; none may be missing.

    Raises:
        InvalidInput: As :func:`read_credentials`.
    """
    values = _body(request)
    return [_one(request, values, name, from_query=False) for name in names]


def read_optional(request: Request, name: str) -> str | None:
    """
    Return one field of the body, or None if it is not there or empty.

    Raises:
        InvalidInput: As :func:`read_credentials`, save for what is missing.
    """
    values = _body(request)
    if values(name) in ([], [""], [None]):
        return None
    return _one(request, values, name, from_query=False)


def read_text(request: Request, name: str) -> str:
    """
    Return one field of the body, or of the query if the body has none.

    Raises:
        InvalidInput: As :func:`read_credentials`.
    """
    return _one(request, _body(request), name, from_query=True)


def has_body(request: Request) -> bool:
    """Tell whether there is a body, whatever the headers say; one that can't be read is one."""
    try:
        return bool(_raw(request))
    except (HTTPException, InvalidInput):
        return True


def typed_text(request: Request, name: str) -> str:
    """
    Return what was typed into a field of a form, to be shown again; empty if it can't be read.

    Args:
        request: The request.
        name: The field.
    """
    try:
        return request.form.get(name, "")
    except Exception:  # noqa: BLE001 - whatever the server's stream raised was refused already
        return ""


def in_query(request: Request, name: str) -> list[str]:
    """
    Return all values of a field of the query.

    Raises:
        InvalidInput: The query is no UTF-8, percent-encoded or not.
    """
    if not request.query_string:
        return []
    try:
        return request.args.getlist(name)
    except UnicodeDecodeError:
        pass
    raise InvalidInput("query", "is not valid UTF-8")


def _one(request: Request, body: Callable[[str], list[Any]], name: str, *, from_query: bool) -> str:
    in_body = body(name)
    queried: list[Any] = in_query(request, name)
    if len(in_body) > 1 or len(queried) > 1:
        raise InvalidInput(name, "is given more than once")
    if in_body and queried and in_body != queried:
        raise InvalidInput(name, "differs between body and query")
    value = next(iter(in_body or (queried if from_query else [])), "")
    if not isinstance(value, str):
        raise InvalidInput(name, "must be text")
    if not value:
        raise InvalidInput(name, "is missing")
    if not is_unicode(value):
        raise InvalidInput(name, "is not valid Unicode text")
    return value


def _body(request: Request) -> Callable[[str], list[Any]]:
    """Read the body, and return what gives all values of a field."""
    try:
        raw = _raw(request)
        if _is_plain_form(request, raw):
            return _PARSER.parse(BytesIO(raw), _FORM, len(raw))[1].getlist
        if request.is_json:
            parsed = _json_object(raw)
            return lambda name: [parsed[name]] if name in parsed else []
        if request.mimetype in _FORMS:
            return request.form.getlist
    except RequestEntityTooLarge:
        raise TooLarge("body", f"is longer than {BODY_BYTES} bytes") from None
    except HTTPException:  # a form that ends too soon
        raise InvalidInput("body", "can't be read to its end") from None
    if request.mimetype or raw:
        raise WrongMediaType("body", "must be a form or JSON")
    return lambda _name: []


def _is_plain_form(request: Request, raw: bytes) -> bool:
    """Tell whether what ``request.form`` would hold is what werkzeug's parser makes of the body."""
    if (
        request.environ.get("CONTENT_TYPE") != _FORM
        or type(request) is not FlaskRequest  # an app's own may read forms in another way
        or "form" in request.__dict__  # read already
    ):
        return False
    longest = request.max_form_memory_size
    return longest is None or len(raw) <= longest


def _raw(request: Request) -> bytes:
    """Read the whole body into the request's own cache, whence its form is parsed later."""
    allowed = request.max_content_length
    longest = BODY_BYTES if allowed is None else min(allowed, BODY_BYTES)
    # One byte more than is allowed, since werkzeug cuts a chunked body off there silently.
    request.max_content_length = longest + 1
    try:
        raw = request.get_data()
    except HTTPException:
        raise
    except Exception:  # noqa: BLE001 - each server has its own for a client that goes or breaks off
        raise InvalidInput("body", "can't be read to its end") from None
    if len(raw) > longest:
        raise RequestEntityTooLarge
    return raw


#: Stands for JSON that is none.
_BROKEN: Final = object()


def _json(raw: bytes) -> object:
    try:
        return json.loads(
            raw.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant
        )
    except InvalidInput:
        raise
    except (ValueError, RecursionError):
        return _BROKEN


def _json_object(raw: bytes) -> dict[str, Any]:
    parsed = _json(raw)
    if parsed is _BROKEN:  # raised here, since the error that said so holds what was sent
        raise InvalidInput("body", "is not valid JSON")
    if not isinstance(parsed, dict):
        raise InvalidInput("body", "must be a JSON object")
    return parsed


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidInput("body", "has the same key twice")
    return found


def _no_constant(_name: str) -> NoReturn:
    raise InvalidInput("body", "is not valid JSON")  # NaN and Infinity are JavaScript's
