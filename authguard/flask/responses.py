"""Answers as Flask responses: problem+json or a page, with the same status and fields."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from flask import Response
from markupsafe import escape
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from authguard.flask.state import current_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.http import Answer

__all__ = ["html", "plain_page", "respond", "wants_json", "wants_page"]

_JSON: Final = frozenset({"application/json", "application/problem+json"})

#: Longest ``Accept`` whose meaning is kept: none of a browser's is longer, and a flood's must not
#: fill the memory.
_LONGEST_KEPT: Final = 256

#: What every page is sent with. ``same-origin``, not ``no-referrer``: under the latter browsers
#: send ``Origin: null`` with our own forms, which is what a cross-site form looks like.
_PAGE_FIELDS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
)

_PLAIN: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<h1>{title}</h1>
<p>{detail}</p>
{wait}"""


def wants_json() -> bool:
    """Tell whether the request is JSON, or asks for it before a page."""
    running = current_request()
    if running.is_json:
        return True
    accept = running.headers.get("Accept", "")
    return (_accepts_json if len(accept) <= _LONGEST_KEPT else _accepts_json.__wrapped__)(accept)


@lru_cache(maxsize=256)
def _accepts_json(accept: str) -> bool:
    """Tell whether JSON comes before a page; what clients send is one of few."""
    wanted = parse_accept_header(accept, MIMEAccept)
    return wanted.best_match(["text/html", *sorted(_JSON)]) in _JSON


def wants_page() -> bool:
    """Tell whether the request asks for a page before JSON; one that takes anything doesn't."""
    running = current_request()
    wanted = running.accept_mimetypes
    return not running.is_json and wanted["text/html"] > max(wanted[each] for each in _JSON)


def respond(
    answer: Answer,
    page: Callable[[Answer], str],
    *,
    as_json: bool | None = None,
    text: str | None = None,
) -> Response:
    """
    Make the answer a response of the kind that the request wants.

    Args:
        answer: Status, fields and problem document.
        page: Renders it where a page is wanted.
        as_json: Whether JSON is wanted; None: as :func:`wants_json` tells.
        text: Its body as JSON, if that was written already.
    """
    if wants_json() if as_json is None else as_json:
        return Response(text or json.dumps(answer.body), answer.status, answer.headers)
    fields = [field for field in answer.headers if field[0] != "Content-Type"]
    response = html(page(answer), answer.status)
    response.headers.extend(fields)
    return response


def html(page: str, status: int = 200) -> Response:
    """
    Make a page a response, with the fields that protect it.

    Args:
        page: The whole document.
        status: The status code.
    """
    return Response(page, status, _PAGE_FIELDS, mimetype="text/html")


def plain_page(answer: Answer) -> str:
    """Render without a template, for views outside the blueprint."""
    wait = answer.retry_after
    return _PLAIN.format(
        title=escape(answer.body["title"]),
        detail=escape(answer.body.get("detail", "Try again later.")),
        wait="" if wait is None else f"<p>You can try again in {wait} seconds.</p>\n",
    )
