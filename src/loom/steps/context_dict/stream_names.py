"""How streams and joins are called in a context dict. May import core.config.

Loom numbers its streams. In a dict they have names, and a binding names a join: the step that opens the stream, the
step that collects it, what it collects and how many.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom.core.config import specs_of

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig

# Foreign names end in sixteen hexadecimal digits, which may happen to be decimal: so fewer than that.
_OWN_NAME = re.compile(r"stream-(\d{1,15})")


def stream_id(number: int) -> str:
    """The name of a stream."""
    return f"stream-{number}"


def binding_id(config: BrokerConfig, source: str, target: str) -> str:
    """The name of the join of `source`'s streams at `target`."""
    spec = specs_of(config).get(target)
    types = ",".join(spec.accepts) if spec is not None else ""
    wanted = "All" if spec is None or spec.take is None else f"Take({spec.take})"
    return f"{source}->{target}:{types}:{wanted}:nearest"


def binding_of_step(config: BrokerConfig, target: str) -> str:
    """The name of a join whose stream may be closed already: its first source is taken."""
    source = next((spec.name for spec in config.steps if target in spec.joins), "")
    return binding_id(config, source, target)


def joined_step(binding: str) -> str:
    """The collecting step that a binding names."""
    return binding.partition("->")[2].partition(":")[0] or binding


class StreamNumbers:
    """Gives the streams of a dict their numbers: Loom's own keep theirs, others are counted as they come."""

    def __init__(self, opened: int) -> None:
        self._opened = self.opened = opened
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a stream, the same whenever it is asked for."""
        number = self._numbers.get(name)
        if number is None:
            own = _OWN_NAME.fullmatch(name)
            number = int(own[1]) if own else 0
            if not 0 < number <= self._opened:
                self.opened += 1
                number = self.opened
            self._numbers[name] = number
        return number

    def scope(self, names: list[str]) -> tuple[int, ...]:
        """The numbers of the streams around something."""
        return tuple(self.number(name) for name in names)
