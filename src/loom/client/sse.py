"""Server-sent events out of bytes. Pure; may import the standard library."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Message(NamedTuple):
    """One message. A heartbeat has an id, perhaps, but no data."""

    id: str | None
    data: str | None


class Messages:
    """Takes bytes as they come, and gives the messages that are complete.

    Lines end with a line feed. Other characters that break lines in texts do not do so here: JSON may hold them.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._id: str | None = None
        self._data: list[str] = []
        self._begun = False

    def feed(self, received: bytes) -> Iterator[Message]:
        """The messages that end within these bytes."""
        searched = len(self._rest)
        self._rest += received
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0:
            line = self._rest[begin:end].decode("utf-8").removesuffix("\r")
            begin = end + 1
            if line:
                self._take(line)
            elif self._begun:
                yield self._complete()
        del self._rest[:begin]

    def _take(self, line: str) -> None:
        self._begun = True
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value

    def _complete(self) -> Message:
        message = Message(self._id, "\n".join(self._data) if self._data else None)
        self._id, self._data, self._begun = None, [], False
        return message
