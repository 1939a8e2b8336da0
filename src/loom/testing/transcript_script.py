"""The words of a transcript's command lines, and what they stand for. May import loom.core."""

from __future__ import annotations

import json
import shlex
from typing import Any, NamedTuple

from loom.core.config import StepSpec
from loom.core.records import (
    EVENT,
    INPUT_REQUIRED_EVENT,
    START_EVENT,
    STEP_FAILED_KIND,
    STOP_EVENT,
    EventKind,
    EventRecord,
)


class ScriptError(ValueError):
    """A command line that makes no sense; the transcript shows it as its outcome."""


RESERVED = frozenset(
    ("at", "to", "waiter", "id", "by", "seq", "ordinal", "retry", "timeout", "needs", "ask", "away", "remove", "type")
)
"""Options that a verb reads; all others are fields of the event."""


class Line(NamedTuple):
    """One command: a verb, its words and its `name=value` options."""

    verb: str
    words: list[str]
    options: dict[str, str]

    def word(self, index: int, what: str) -> str:
        """The word at a position, which must be there."""
        if index >= len(self.words):
            raise ScriptError(f"{self.verb} needs {what}")
        return self.words[index]

    def seconds(self, name: str) -> float | None:
        """An option that is a time."""
        text = self.options.get(name)
        return duration(text) if text is not None else None

    def number(self, name: str) -> int | None:
        """An option that is a whole number."""
        text = self.options.get(name)
        return int(text) if text is not None else None

    def fields(self) -> dict[str, Any]:
        """The options that are fields of an event."""
        return {name: value_of(text) for name, text in self.options.items() if name not in RESERVED}


def parse(text: str) -> Line:
    """Read one command."""
    verb, *rest = shlex.split(text)
    options = dict(word.split("=", 1) for word in rest if "=" in word and not word.startswith("["))
    return Line(verb, [word for word in rest if "=" not in word or word.startswith("[")], options)


def duration(text: str) -> float:
    """`2.5s` in seconds."""
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise ScriptError(f"{text!r} is no time: write it like 2.5s") from None


def value_of(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def reference(text: str) -> tuple[str, int]:
    """`plan#1`: the step and the work item."""
    step, mark, item = text.partition("#")
    if not mark or not item.isdigit():
        raise ScriptError(f"{text!r} names no work: write it like plan#1")
    return step, int(item)


class Kinds:
    """The event types of a transcript. A name that was not defined is a plain event."""

    def __init__(self) -> None:
        self._kinds = {STEP_FAILED_KIND.label: STEP_FAILED_KIND}
        for name in (START_EVENT, STOP_EVENT, INPUT_REQUIRED_EVENT):
            self._kinds[name.rpartition(".")[2]] = EventKind(name, (EVENT,), name.rpartition(".")[2])

    def define(self, name: str, base: str) -> None:
        """Make one type a subclass of another."""
        parent = self.of(base)
        self._kinds[name] = EventKind(f"t.{name}", (parent.name, *parent.bases), name)

    def of(self, name: str) -> EventKind:
        """The type of this short name."""
        return self._kinds.setdefault(name, EventKind(f"t.{name}", (EVENT,), name))

    def wire(self, names: str) -> tuple[str, ...]:
        """Wire names of a comma-separated list."""
        return tuple(self.of(name).name for name in names.split(","))

    def event(self, text: str, fields: dict[str, Any] | None = None) -> EventRecord:
        """An event from `Type` or `Type:value`, which sets its field `n`."""
        name, mark, value = text.partition(":")
        return EventRecord(self.of(name), {"n": value_of(value), **(fields or {})} if mark else fields or {})

    def counts(self, text: str) -> tuple[tuple[str, int], ...]:
        """`A:2,B:1` as what a collect call needs."""
        pairs = (entry.partition(":") for entry in text.split(","))
        return tuple((self.of(name).name, int(number or 1)) for name, _, number in pairs)

    def step(self, line: Line) -> StepSpec:
        """A step from its `define` line."""
        options = line.options
        slots = [word.split(":") for word in options.get("slots", "").split("/") if word]
        accepts = self.wire(line.word(1, "the types that the step takes"))
        return StepSpec(
            line.word(0, "a step's name"),
            accepts,
            inputs=self.wire(options["inputs"]) if "inputs" in options else (),
            num_workers=line.number("workers") or 0 if "workers" in options else 4,
            accept_subclasses="subclasses" in line.words,
            slots=tuple((name, self.wire(types)) for name, types in slots),
            collects="join" in line.words,
            take=line.number("take"),
            joins=tuple(options["joins"].split(",")) if "joins" in options else (),
            recovered_by=options.get("recovered_by"),
            max_recoveries=line.number("max_recoveries") or 0,
        )
