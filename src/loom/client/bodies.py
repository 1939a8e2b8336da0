"""What requests are made of: events by their types, documents of flows in JSON or YAML, filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom.api.requests import query_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.api.requests import RunFilters
    from loom.steps.events import Event

T = TypeVar("T")


def described_event(event: Event | str, value: Any) -> tuple[str, Any]:
    """Return the type and the fields of an event, for a request."""
    if isinstance(event, str):
        return event, {} if value is None else value
    if value is not None:
        raise TypeError("The fields of an event belong to the name of its type, not to an event that has its own.")
    return type(event).__name__, event


def document_body(document: Mapping[str, Any] | str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the body and headers that carry a document."""
    if not isinstance(document, str):
        return {"body": document, "headers": headers}
    is_json = document.lstrip().startswith("{")
    kind = "application/json" if is_json else "application/yaml"
    return {"body": document.encode("utf-8"), "headers": {**headers, "Content-Type": kind}}


def written_filters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Write filters as the API has them; those that are None are left out."""
    query = query_of(cast("RunFilters", given))
    return {name: value for name, value in query.items() if value is not None}


def plain_dict(given: Mapping[str, T] | None) -> dict[str, T] | None:
    """Make a dict of any mapping; None stays None."""
    return dict(given) if given is not None else None
