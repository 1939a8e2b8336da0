"""Streams and their joins: the counting behind `list[E]` steps. Pure.

May import loom.core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from immutables import Map
from msgspec.structs import replace

from loom.core.config import specs_of
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo
from loom.core.records import RELEASE_KIND, EventRecord, Release

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig, StepSpec


class JoinBuffer(msgspec.Struct, frozen=True, array_like=True):
    """What has arrived at one join from one stream, and whether the join has fired."""

    members: Fifo[EventRecord] = EMPTY_FIFO
    fired: bool = False


_EMPTY_JOIN = JoinBuffer()


class Stream(msgspec.Struct, frozen=True, array_like=True):
    """A list that a step returned, while its members are worked on."""

    source: str
    scope: tuple[int, ...]
    """The streams around it, outermost first."""
    tokens: int
    """Events, work items and inner streams of it that are not settled."""
    joins: Map[str, JoinBuffer] = EMPTY_MAP


class StepsPlan(msgspec.Struct, frozen=True, tag=True):
    """What the steps planner has to remember: open streams, and the filled slots of joins."""

    streams: Map[int, Stream] = EMPTY_MAP
    opened: int = 0
    slots: Map[str, Map[str, Fifo[EventRecord]]] = EMPTY_MAP


class Fired(msgspec.Struct, frozen=True):
    """A join whose set is complete, and the streams around its work."""

    step: str
    event: EventRecord
    scope: tuple[int, ...]


def open_stream(plan: StepsPlan, step: str, scope: tuple[int, ...], tokens: int) -> tuple[StepsPlan, tuple[int, ...]]:
    """Open a stream with so many members. It takes the token that the work which opened it had one level up."""
    number = plan.opened + 1
    stream = Stream(step, scope, tokens)
    return replace(plan, streams=plan.streams.set(number, stream), opened=number), (*scope, number)


def adjust(config: BrokerConfig, plan: StepsPlan, scope: tuple[int, ...], tokens: int) -> tuple[StepsPlan, list[Fired]]:
    """Change the tokens of the innermost stream; at zero it closes and its joins fire, one level up, and so on."""
    fired: list[Fired] = []
    while scope:
        number = scope[-1]
        stream = plan.streams.get(number)
        if stream is None:
            return plan, fired
        left = stream.tokens + tokens
        if left > 0:
            return replace(plan, streams=plan.streams.set(number, replace(stream, tokens=left))), fired
        plan = replace(plan, streams=plan.streams.delete(number))
        closing = _close(config, number, stream)
        fired += closing
        # The stream's own token one level up becomes the tokens of the joins that fire now.
        scope, tokens = stream.scope, len(closing) - 1
    return plan, fired


def _close(config: BrokerConfig, number: int, stream: Stream) -> list[Fired]:
    specs = specs_of(config)
    source = specs.get(stream.source)
    fired = []
    for name in source.joins if source is not None else ():
        join = stream.joins.get(name, JoinBuffer())
        if name in specs and not join.fired:
            fired.append(_fire(number, name, tuple(join.members), stream.scope))
    return fired


def _fire(stream: int, step: str, members: tuple[EventRecord, ...], scope: tuple[int, ...]) -> Fired:
    return Fired(step, EventRecord(RELEASE_KIND, Release(stream, step, members)), scope)


def arrive(
    config: BrokerConfig,
    plan: StepsPlan,
    spec: StepSpec,
    scope: tuple[int, ...],
    event: EventRecord,
    settled: int = 0,
) -> tuple[StepsPlan, list[Fired], bool]:
    """A member has reached a join: it is put aside, or completes the `Take(n)` that the join asked for.

    `settled` tokens are given back with it. The last value says whether the join collects this stream at all.
    """
    number = scope[-1]
    stream = plan.streams.get(number)
    source = specs_of(config).get(stream.source) if stream is not None else None
    if stream is None or source is None or spec.name not in source.joins:
        return plan, [], False
    join = stream.joins.get(spec.name, _EMPTY_JOIN)
    fired: list[Fired] = []
    if not join.fired:
        join = JoinBuffer(join.members.push_back(event))
        if spec.take is not None and len(join.members) >= spec.take:
            fired = [_fire(number, spec.name, tuple(join.members), stream.scope)]
            join = JoinBuffer(EMPTY_FIFO, fired=True)
    closes = stream.tokens <= settled
    stream = replace(stream, joins=stream.joins.set(spec.name, join), tokens=stream.tokens - (0 if closes else settled))
    plan = replace(plan, streams=plan.streams.set(number, stream))
    if fired and stream.scope:
        # The join's work is new one level up: the stream itself stays open there.
        plan, more = adjust(config, plan, stream.scope, 1)
        fired += more
    if closes and settled:
        plan, more = adjust(config, plan, scope, -settled)
        fired += more
    return plan, fired, True


def targeted_at_join(label: str, step: str) -> str:
    """Why an event cannot be sent to a join."""
    return (
        f"{label} was sent to step '{step}' with send_event(step=...), but that step collects list[{label}] and only "
        "takes events that were returned inside a stream."
    )


def outside_of_stream(label: str, step: str) -> str:
    """Why a join ignores an event that was sent."""
    return f"{label} is ignored by step '{step}', which collects a stream: the event was sent outside of any stream."


def not_bound(label: str, step: str) -> str:
    """Why a join ignores an event of another stream."""
    return f"{label} is dropped at step '{step}': the stream that it belongs to does not end in this step."


def stuck(plan: StepsPlan) -> str:
    """Why an idle run with open streams has failed."""
    details = "; ".join(
        f"stream {number} of step '{stream.source}' with {stream.tokens} open piece(s) of work"
        for number, stream in sorted(plan.streams.items())
    )
    return f"Workflow is idle but collection streams are still open, so that they can never be collected: {details}."
