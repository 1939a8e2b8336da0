"""How a `list[E]` step collects a stream: the `Collect` marker and when it releases.

May import nothing of Loom. The marker goes into the annotation of the parameter:

    async def fastest(self, evs: Annotated[list[Answer], Collect(Take(1))]) -> StopEvent: ...

A bare `list[E]` means `Collect(All())`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def is_count(value: object) -> bool:
    """Whether a value counts something: an integer from 1 on, and not a bool, though Python calls that an integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


@dataclass(frozen=True)
class Cardinality:
    """When a collecting step fires and with which members; use `All` or `Take`."""


@dataclass(frozen=True)
class All(Cardinality):
    """Fires when all work of the stream is settled, with every member that arrived."""


@dataclass(frozen=True)
class Take(Cardinality):
    """Fires at the n-th arrival with the first `n` members, or at the stream's end with fewer.

    The other branches of the stream run on; what they bring is dropped.
    """

    n: int

    def __post_init__(self) -> None:
        """Refuse what can never be counted to."""
        if not is_count(self.n):
            raise ValueError("Take(n) requires an integer n >= 1")


@dataclass(frozen=True)
class Collect:
    """Marks a `list[E]` parameter and says how its stream is collected."""

    cardinality: Cardinality = field(default_factory=All)
