"""Where services call back: the address in the place that a flow has left for it. May import loom.flows.

A flow knows neither the address of its host nor any secret, so `listCallbackUrl()` gives a mark. It becomes a real
address when the request goes out and nowhere else: what is stored and shown has the mark.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote

from loom.flows.calls import CALLBACK


class Callbacks(Protocol):
    """What gives out addresses for callbacks."""

    url: str | None
    """The address that the server has for others; None: nobody can call back."""

    async def address(self, run_id: str, key: str, until: float | None = None, *, get: bool = False) -> str | None:
        """The address at which the action of a key is called back until a time, and nothing else can be done.

        `get`: a GET is a call too, not only a POST.
        """
        ...


def with_address(value: Any, address: str | None) -> Any:
    """Data of an action with the address wherever the mark stands, also within texts and as a part of another URL."""
    return value if address is None else _replaced(value, CALLBACK, address)


def without_address(value: Any, address: str | None) -> Any:
    """The same the other way round, for what a service says that repeats the address: it is not for readers."""
    return value if address is None else _replaced(value, address, CALLBACK)


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new).replace(quote(old, safe=""), quote(new, safe=""))
        case dict():
            return {key: _replaced(item, old, new) for key, item in value.items()}
        case list():
            return [_replaced(item, old, new) for item in value]
        case _:
            return value
