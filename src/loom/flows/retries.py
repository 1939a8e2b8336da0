"""Retries: of an action by its policy, and of a failed run by its operator.

A policy tries a failed action again after a delay. A retry of the run goes on inside failed containers, down to the
action that failed: a loop at the failed iteration, a condition in the branch that was taken. What ended well stays done
at every level.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.persistent import EMPTY_MAP, Map
from loom.flows.outcomes import forgotten
from loom.flows.state import ENDED, ENTER, Unfinished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loom.flows.program import ActionRetryPolicy, Program, RetryLimits
    from loom.flows.state import EachState, FlowPlan, Frame, LoopState, Record, Tries
    from loom.flows.walk import Walk


# -- retries of an action ----------------------------------------------------------------------------------------------

_TRANSIENT = frozenset({408, 429})
_SERVER_ERRORS = range(500, 600)
_JITTER = 0.1
_PRECISION = 1 << 30


def next_delay(
    policy: ActionRetryPolicy, tries: int, record: Record, random_below: Callable[[int], int]
) -> float | None:
    """Return seconds until the next try of an action that was tried again `tries` times; None: no further try."""
    if policy.type == "none" or tries >= policy.count or not _may_help(policy, record):
        return None
    delay = _delay(policy, tries, random_below)
    return max(delay, record.retry_after) if record.retry_after is not None else delay


def limited_delay(
    policy: ActionRetryPolicy, limits: RetryLimits, tries: Tries, at: float, delay: float
) -> float | None:
    """Apply the system's limits to a delay, under the rules `RETRIES_HAVE_LIMITS`; None: no further try."""
    if policy.type == "fixed" and not policy.azure:
        delay = max(delay, policy.min_interval_s)
    is_over = tries.count >= limits.max_count or at + delay - tries.first_at > limits.max_duration_s
    return None if is_over else delay


def _may_help(policy: ActionRetryPolicy, record: Record) -> bool:
    """Tell whether the policy is for such a failure."""
    status = _status_code(record)
    if policy.on is not None:
        names = {record.error_type.lower(), record.code.lower(), "" if status is None else str(status)}
        if record.status == "TimedOut" or status in (408, 504):
            names.add("timeout")
        return not names.isdisjoint(policy.on)
    if not policy.azure:
        return True
    if status is not None:
        return status in _TRANSIENT or status in _SERVER_ERRORS
    return record.error_type in ("connection", "timeout") and record.status != "TimedOut"


def _status_code(record: Record) -> int | None:
    code = record.outputs.get("statusCode") if isinstance(record.outputs, dict) else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _delay(policy: ActionRetryPolicy, tries: int, random_below: Callable[[int], int]) -> float:
    if policy.type == "fixed":
        return policy.interval_s
    # No interval is longer than years: the power is kept within what floats can hold.
    interval = policy.interval_s * 2.0 ** min(tries, 64)
    chance = random_below(_PRECISION) / _PRECISION
    if policy.azure:
        high = min(interval, policy.max_interval_s)
        low = min(max(interval / 2, policy.min_interval_s), high) if tries else policy.min_interval_s
        return max(low + (high - low) * chance, policy.min_interval_s)
    return max(min(interval * (1 + _JITTER * chance), policy.max_interval_s), policy.min_interval_s)


# -- retries of the run ------------------------------------------------------------------------------------------------

_FINE = frozenset({"Succeeded", "Skipped"})


class Resumption:
    """One pass over the frames of a failed flow, outermost first. Each goes on with what did not end well in it."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self._pending: deque[int] = deque()
        self._frames: dict[tuple[int, int], list[Frame]] = {}
        """Blocks that were under way when the run was terminated, by frame and node of their owners."""
        self._loops: dict[tuple[int, int], LoopState] = {}
        self._eaches: dict[tuple[int, int], EachState] = {}

    def with_what_was_under_way(self, plan: FlowPlan) -> Resumption:
        """Include containers that had not ended."""
        blocks = self.walk.program.blocks
        for _, frame in sorted(plan.frames.items()):
            self._frames.setdefault((frame.parent, blocks[frame.block].owner), []).append(frame)
        self._loops = {(loop.frame, loop.node): loop for loop in plan.loops.values()}
        self._eaches = {(each.frame, each.node): each for each in plan.eaches.values()}
        return self

    def reopen(self, frame: Frame) -> None:
        """Go on in a frame, under its old number."""
        self.walk.frames = self.walk.frames.set(frame.id, frame)
        self._pending.append(frame.id)

    def work(self) -> None:
        """Go on in all reopened frames, and in the frames inside them."""
        while self._pending:
            self._go_on_in(self.walk.frames[self._pending.popleft()])

    def _go_on_in(self, frame: Frame) -> None:
        walk, nodes = self.walk, self.walk.program.nodes
        members, records = walk.program.blocks[frame.block].nodes, walk.frames[frame.scope].records
        again = _to_go_on(walk.program, members, records)
        first = [index for index in members if index in again and again.isdisjoint(b for b, _ in nodes[index].after)]
        inside = {index: found for index in first if (found := self._unfinished(frame, index, records.get(index)))}
        gone = [one for index in again for one in (index, *(() if index in inside else nodes[index].descendants))]
        kept = self._forget(frame, gone)
        fresh = replace(walk.frames[frame.id], tries=EMPTY_MAP, entered=EMPTY_MAP, inputs=EMPTY_MAP)
        walk.frames = walk.frames.set(frame.id, replace(fresh, left=sum(index not in kept for index in members)))
        for index in first:
            if index in inside:
                record = records.get(index)
                since = frame.entered[index] if record is None else record.started
                inputs = frame.inputs[index] if record is None else record.inputs
                begun = walk.begin(walk.frames[frame.id], nodes[index], inputs)
                walk.frames = walk.frames.set(frame.id, replace(begun, entered=begun.entered.set(index, since)))
                nodes[index].operation.resume(self, nodes[index], inside[index], record)
            else:
                walk.agenda.append((ENTER, frame.id, index))
        if not again:
            walk.agenda.append((ENDED, frame.id, 0))

    def _unfinished(self, frame: Frame, index: int, record: Record | None) -> Unfinished | None:
        """Find what a container can go on with; None: it has nothing, or is no container, and begins anew."""
        if record is not None:
            return record.unfinished
        place = (frame.id, index)
        found = Unfinished(tuple(self._frames.get(place, ())), self._loops.get(place), self._eaches.get(place))
        return found if index in frame.entered and found != Unfinished() else None

    def _forget(self, frame: Frame, gone: Iterable[int]) -> Map[int, Record]:
        walk = self.walk
        scope = walk.frames[frame.scope]
        records, had_answered = forgotten(walk.program, scope.records, gone)
        walk.response = None if had_answered else walk.response
        walk.frames = walk.frames.set(scope.id, replace(scope, records=records))
        return records


def go_on(walk: Walk) -> None:
    """Let a failed flow go on with what did not end well, at any depth."""
    resumption = Resumption(walk).with_what_was_under_way(walk.plan)
    root = walk.frames[1]
    walk.frames = walk.loops = walk.eaches = walk.waits = EMPTY_MAP
    walk.yielding = False
    walk.agenda.clear()
    resumption.reopen(root)
    resumption.work()


def reopen(walk: Walk, frames: Iterable[Frame]) -> None:
    """Go on in iterations that failed before the flow was retried, whose turn has come."""
    resumption = Resumption(walk)
    for frame in frames:
        resumption.reopen(frame)
    resumption.work()


def _to_go_on(program: Program, members: Iterable[int], records: Map[int, Record]) -> set[int]:
    """Find actions of a block that failed, were under way or ended the run, and all actions that run after them.

    An action that ran because another had failed is among them: its reason is gone.
    """
    again = set()
    for index in members:
        record = records.get(index)
        ended_the_run = program.nodes[index].type == "terminate" and record is not None and record.status != "Skipped"
        if record is None or record.status not in _FINE or ended_the_run:
            again.add(index)
    return _with_followers(program, again)


def _with_followers(program: Program, again: set[int]) -> set[int]:
    pending = sorted(again)
    while pending:
        for follower in program.nodes[pending.pop()].followers:
            if follower not in again:
                again.add(follower)
                pending.append(follower)
    return again


def begin_again(walk: Walk) -> None:
    """Let a flow go on that was stored under `AS_FIRST`: what failed at its top level begins anew.

    An action that ran because another had failed is forgotten too: its reason is gone.
    """
    root = walk.frames[1]
    again = _to_repeat(walk)
    gone = [one for index in again for one in (index, *walk.program.nodes[index].descendants)]
    records, _ = forgotten(walk.program, root.records, gone)
    nodes = walk.program.blocks[0].nodes
    left = sum(index not in records for index in nodes)
    fresh = replace(root, records=records, entered=EMPTY_MAP, inputs=EMPTY_MAP, tries=EMPTY_MAP, left=left)
    walk.frames = Map({1: fresh})
    walk.loops = walk.eaches = walk.waits = EMPTY_MAP
    walk.yielding = False
    if not any(walk.program.nodes[i].type == "response" and records[i].status == "Succeeded" for i in records):
        walk.response = None
    walk.agenda.clear()
    for index in nodes:
        if index in again and all(before in records for before, _ in walk.program.nodes[index].after):
            walk.agenda.append((ENTER, 1, index))


def _to_repeat(walk: Walk) -> set[int]:
    """Find top-level actions that failed, were under way or ended the run, and all actions that run after them.

    An action that was skipped for another reason stays skipped, except for a `terminate`.
    """
    records, nodes = walk.frames[1].records, walk.program.nodes
    again = {
        index
        for index in walk.program.blocks[0].nodes
        if index not in records or records[index].status not in _FINE or nodes[index].type == "terminate"
    }
    return _with_followers(walk.program, again)
