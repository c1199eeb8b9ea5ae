"""The blueprint's pages: templates with what they need, and what each says for each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flask import render_template, request, url_for

from authguard.flask.fields import typed_text
from authguard.flask.responses import html
from authguard.flask.state import current_state
from authguard.identity import LONGEST_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flask import Response

    from authguard.http import Answer

__all__ = ["endpoint", "error_page", "form_page", "page", "show"]

#: What a page says by the answer's status; the same for every cause. A page has its own words for
#: what it refuses.
_STATES: Final = {
    400: ("malformed", "Fill in the form."),
    401: ("failed", "That is not right."),
    403: ("refused", "This is not possible from your address."),
    413: ("malformed", "That is too long."),
    415: ("malformed", "Use the form."),
    429: ("refused", "Too many attempts."),
    503: ("unavailable", "This is not possible at the moment."),
}


def show(name: str, status: int = 200, **context: Any) -> Response:
    """
    Answer with a page.

    Args:
        name: The template, without folder and ending.
        status: The status code.
        context: What the template needs.
    """
    return html(page(name, **context), status)


def page(name: str, **context: Any) -> str:
    """
    Render a page.

    Args:
        name: The template, without folder and ending.
        context: What the template needs.
    """
    messages = current_state().messaging is not None
    return render_template(f"authguard/{name}.html", url_for=_url_for, messages=messages, **context)


def form_page(
    name: str,
    words: Mapping[int, str],
    context: Callable[[], dict[str, Any]] = dict,
    *,
    state: str | None = None,
    waits: bool = True,
) -> Callable[[Answer], str]:
    """
    Give what renders a form again with a refusal above it.

    Args:
        name: The template.
        words: What it says by status, where that is not what all say; ``{detail}`` stands for the
            answer's own words.
        context: Gives what else it needs.
        state: The page's state, where it is not the status's.
        waits: Whether the page's own form has to wait as long as the answer says.
    """

    def render(answer: Answer) -> str:
        usual, message = _STATES[answer.status]
        message = words.get(answer.status, message)
        return page(
            name,
            state=state or usual,
            message=message.replace(
                "{detail}", answer.body.get("detail", "").replace(": ", " ", 1)
            ),
            retry_after=answer.retry_after if waits else None,
            identifier=typed_text(request, "identifier")[:LONGEST_ACCOUNT],
            **context(),
        )

    return render


def error_page(answer: Answer) -> str:
    """Render a refusal that has no form."""
    return page(
        "error",
        title=answer.body["title"],
        message=answer.body["detail"],
        retry_after=answer.retry_after,
    )


def endpoint(name: str) -> str:
    """
    Give the full name of one of our endpoints, in the blueprint that serves this request.

    Args:
        name: Its own name, such as ``login``.
    """
    return f"{request.blueprint}.{name}"


def _url_for(endpoint_: str, **values: Any) -> str:
    # Templates call our endpoints "authguard.…". Nested or registered under another name, the
    # blueprint that serves this request knows what they are really called.
    if endpoint_.startswith("authguard."):
        endpoint_ = endpoint(endpoint_.removeprefix("authguard."))
    return url_for(endpoint_, **values)
