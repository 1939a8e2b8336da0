"""The effects of an execution on its run: numbered, applied in order, and never applied twice. Pure.

A body that runs again after a crash or a release repeats what it did. Each effect carries (execution, ordinal), so a
repeated one is recognised here and skipped. An ordinal that comes back as something else means that the code has
changed under the run: the run is parked, and says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.kernel import lifecycle, waits

if TYPE_CHECKING:
    from loom.core.draft import Draft
    from loom.core.state import Execution
    from loom.core.ticks import Source


def find(d: Draft, step: str, item: int, seq: int) -> Execution | None:
    """The execution that a command of this number started, if it is still under way; else the miss is counted."""
    execution = d.worker(step).execution(item)
    if execution is None or execution.seq != seq or not execution.live:
        d.dropped += 1
        return None
    return execution


def claim(d: Draft, source: Source, kind: str) -> Execution | None:
    """The execution that an effect is of, if it is to be applied: it is under way and has not had it before."""
    execution = find(d, source.step, source.item, source.seq)
    if execution is None:
        return None
    earlier = execution.effects.get(source.ordinal)
    if earlier is None:
        return record(d, execution, source.ordinal, kind)
    if earlier != kind:
        lifecycle.park(d, _changed(source, earlier, kind))
    return None


def record(d: Draft, execution: Execution, ordinal: int, kind: str) -> Execution:
    """Remember that an execution has had an effect."""
    execution = replace(execution, effects=execution.effects.set(ordinal, kind))
    _put(d, execution)
    return execution


def begin(d: Draft, source: Source, kind: str, key: str) -> tuple[Execution, str] | None:
    """Note that a body waits. None if there is nothing to wait for: it is gone, or was answered before.

    A body that runs again may have made up another waiter id; what counts is which of its effects the wait is, and that
    it is of the same kind. Without a kind it must have the very same key.
    """
    execution = find(d, source.step, source.item, source.seq)
    if execution is None:
        return None
    earlier = execution.effects.get(source.ordinal)
    if earlier is None:
        execution = record(d, execution, source.ordinal, key)
    elif earlier == key or (kind and earlier.startswith(kind)):
        key = earlier
    else:
        claim(d, source, key)
        return None
    answer = waits.answer_of(d, execution.item.id, key)
    if answer is not None:
        waits.reply(d, execution, key, answer)
        return None
    return execution, key


def truncated(execution: Execution, ordinal: int) -> Execution:
    """The execution without its effects from `ordinal` on: the body will take another path from there."""
    effects = execution.effects
    for done in [n for n in effects if n >= ordinal]:
        effects = effects.delete(done)
    return replace(execution, effects=effects)


def _put(d: Draft, execution: Execution) -> None:
    item = execution.item
    worker = d.workers[item.step]
    if item.id in worker.in_progress:
        worker = replace(worker, in_progress=worker.in_progress.set(item.id, execution))
    else:
        worker = replace(worker, suspended=worker.suspended.set(item.id, execution))
    d.workers = d.workers.set(item.step, worker)


def _changed(source: Source, earlier: str, now: str) -> str:
    return (
        f"Step '{source.step}' ran again and did something else than before: its effect number {source.ordinal} "
        f"was '{earlier}' and is now '{now}'. The run is parked until the code that it was made with is back."
    )
