"""The index of waiters finds what a look at all of them finds, follows every change, and leaves with its state."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from core_rig import START, A, B, Rig, ev, kind, read_field
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loom.core import waiter_index
from loom.core.commands import CommandResumeWorker
from loom.core.persistent import Map
from loom.core.records import IdleReport
from loom.core.state import MAX_REPORTED, StepSpec, StepWorkerWaiter
from loom.core.ticks import TickEndWait
from loom.core.waiter_index import WORTHWHILE, carry_on, index_of, known_index
from loom.store import codec

WIDE = StepSpec("work", (START.name, A.name), num_workers=0)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, float("nan"), "a", "b", ""]),
    st.lists(st.integers(0, 1), max_size=1),
)  # fmt: skip
_REQUIREMENTS = st.lists(st.tuples(st.sampled_from(["n", "m"]), _VALUES), max_size=2).map(tuple)


def _waiter(number: int, requirements: tuple[tuple[str, Any], ...], waiter_id: str) -> StepWorkerWaiter:
    return StepWorkerWaiter(number, "work", number, f"wait:{number}", waiter_id, B.name, requirements)


def _meets(waiter: StepWorkerWaiter, fields: dict[str, Any]) -> bool:
    return all(fields.get(name) == value for name, value in waiter.requirements)


@given(
    wanted=st.lists(st.tuples(_REQUIREMENTS, st.sampled_from(["w", "v"])), min_size=1, max_size=12),
    gone=st.sets(st.integers(0, 11)),
    fields=st.dictionaries(st.sampled_from(["n", "m"]), _VALUES),
    waiter_id=st.none() | st.sampled_from(["w", "v", "u"]),
)
def test_candidates_are_all_that_match(
    wanted: list[tuple[Any, str]], gone: set[int], fields: dict[str, Any], waiter_id: str | None
) -> None:
    waiters = {number: _waiter(number, *each) for number, each in enumerate(wanted)}
    of_type = Map(dict.fromkeys(waiters, "work"))
    index = index_of(of_type, lambda number, _step: waiters[number])
    assert index.numbers == sorted(waiters)
    for number in gone & waiters.keys():
        index = index.without_waiter(waiters.pop(number))
    newer = _waiter(40, (("n", 1),), "w")
    index, waiters[40] = index.with_waiter(newer), newer
    found = {number for number, _ in index.candidates(waiter_id, fields.get)}
    matching = {
        number for number, waiter in waiters.items() if waiter_id in (None, waiter.waiter_id) and _meets(waiter, fields)
    }
    assert matching <= found <= waiters.keys()
    assert index.numbers == sorted(waiters)


def _waiting(count: int, spec: StepSpec = WIDE) -> Rig:
    """A run with this many waiters, each of which wants a number of its own."""
    rig = Rig(spec).start()
    for _ in range(count - 1):
        rig.event(A)
    for number, item in enumerate(sorted(rig.worker().in_progress)):
        rig.wait(item, waiter=f"w{number}", requirements=(("n", number),))
    return rig


@pytest.mark.parametrize("count", [WORTHWHILE - 2, WORTHWHILE + 8])
def test_each_of_few_or_many_waiters_gets_its_own_answer(count: int) -> None:
    rig = _waiting(count)
    for number in (3, 0, count - 1):
        (waiter,) = [w for _, w in rig.state.get_active_waiters() if w.waiter_id == f"w{number}"]
        rig.event(B, fields={"n": number})
        (reply,) = rig.commands(CommandResumeWorker)
        assert (reply.key, reply.event) == (waiter.key, ev(B, n=number))
    rig.event(B, fields={"n": count + 5})
    assert rig.commands(CommandResumeWorker) == []


def test_the_index_reads_one_waiter_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = _waiting(2 * WORTHWHILE)
    rig.event(B, fields={"n": 1})
    looked_at: list[str] = []
    monkeypatch.setattr("core_rig.read_field", lambda event, name: looked_at.append(name) or read_field(event, name))
    rig.event(B, fields={"n": 2})
    assert len(rig.commands(CommandResumeWorker)) == 1
    assert len(looked_at) <= 3 * 2, "once to find it and once to compare, each time that the rig reduces the tick"


@pytest.mark.parametrize("count", [WORTHWHILE - 2, WORTHWHILE + 8])
def test_a_derived_event_finds_its_waiters_among_few_or_many_of_a_step_that_takes_subclasses(count: int) -> None:
    derived = kind("t.DerivedB", B.name)
    strict, lax = _waiting(count), _waiting(count, replace(WIDE, accept_subclasses=True))
    for number in (3, 0, count - 1):
        strict.event(derived, fields={"n": number})
        assert strict.commands(CommandResumeWorker) == []
        (waiter,) = [w for _, w in lax.state.get_active_waiters() if w.waiter_id == f"w{number}"]
        lax.event(derived, fields={"n": number})
        (reply,) = lax.commands(CommandResumeWorker)
        assert (reply.key, reply.event) == (waiter.key, ev(derived, n=number))
    lax.event(derived, fields={"n": 1}, waiter_id="w2")
    assert lax.commands(CommandResumeWorker) == []
    assert strict.state.waiting.kept_count == 3


def test_a_state_is_written_as_without_an_index() -> None:
    with_index = _waiting(WORTHWHILE + 4)
    with_index.event(B, fields={"n": 7})
    written = codec.encode_state(with_index.state)
    waiter_index._kept.clear()
    assert codec.encode_state(with_index.state) == written
    assert [w.waiter_id for _, w in with_index.state.get_active_waiters()] == [
        report.waiter_id for report in with_index.state.waiter_reports()
    ]


def test_an_index_follows_its_map_and_goes_with_it() -> None:
    waiters = {number: _waiter(number, (("n", number),), "w") for number in range(WORTHWHILE + 1)}
    before = Map(dict.fromkeys(range(WORTHWHILE), "work"))
    index_of(before, lambda number, _step: waiters[number])
    after = before.set(WORTHWHILE, "work")
    carry_on(before, after, waiters[WORTHWHILE])
    assert known_index(after) == index_of(Map(after.items()), lambda number, _step: waiters[number])
    key = id(after)
    del after
    gc.collect()
    assert key not in waiter_index._kept
    small = before.delete(3)
    carry_on(before, small, waiters[3])
    assert known_index(small) is None, "few are looked through"


def test_the_stream_is_told_of_the_oldest_waiters_only() -> None:
    rig = _waiting(MAX_REPORTED + 5)
    (report,) = rig.published(IdleReport)
    assert [waiter.waiter_id for waiter in report.waiters] == [f"w{n}" for n in range(MAX_REPORTED)]
    assert len(rig.state.waiter_reports()) == MAX_REPORTED + 5
    rig.event(B, fields={"n": 50})
    body = rig.body(51)
    rig.tick(TickEndWait(at=0.0, step="work", item=51, seq=body.seq, key="none"))
    rig.finish(51)
    (report,) = rig.published(IdleReport)
    expected = [n for n in range(MAX_REPORTED + 1) if n != 50]
    assert [waiter.waiter_id for waiter in report.waiters] == [f"w{n}" for n in expected]
