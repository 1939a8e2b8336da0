"""Laws of the codec: what was stored is what was there, for every tick, chunk and state that a run can come to."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import CONFIGS, Step, programs, start, tick_for

from loom.core.commands import CommandPublishEvent
from loom.core.records import EventRecord, Published
from loom.core.reducer import advance
from loom.core.state import BrokerState
from loom.core.ticks import TickEditStore, TickStartRun, WorkflowTick
from loom.steps.planner import StepsPlanner
from loom.store import codec
from loom.store.errors import CorruptRecord


def read_text(event: EventRecord, name: str) -> Any:
    return json.loads(event.body).get(name) if isinstance(event.body, str) else None


def encoded(value: Any) -> Any:
    """The same with texts as the bodies of its events, as stored runs have them."""
    if isinstance(value, EventRecord) and isinstance(value.body, dict):
        return replace(value, body=json.dumps(value.body))
    if isinstance(value, tuple):
        return tuple(map(encoded, value))
    if isinstance(value, TickStartRun):
        value = replace(value, store={key: json.dumps(item) for key, item in value.store.items()})
    if isinstance(value, TickEditStore):
        value = replace(value, changed={key: json.dumps(item) for key, item in value.changed.items()})
    if isinstance(value, msgspec.Struct):
        return replace(value, **{name: encoded(getattr(value, name)) for name in value.__struct_fields__})
    return value


def walk(program: list[int]) -> list[Step]:
    """A run with stored bodies; its first number chooses the code."""
    planner, state, steps = StepsPlanner(), BrokerState(), []
    tick: WorkflowTick = encoded(start(CONFIGS[sum(program[:1]) % len(CONFIGS)]))
    for code in (0, *program[1:]):
        if steps:
            tick = encoded(tick_for(code, state))
        after, commands = advance(state, tick, planner, read_text)
        steps.append(Step(state, tick, after, commands))
        state = after
    return steps


def published(steps: list[Step]) -> list[Published]:
    return [command.event for s in steps for command in s.commands if isinstance(command, CommandPublishEvent)]


@given(programs())
def test_every_tick_and_every_state_comes_back(program: list[int]) -> None:
    for step in walk(program):
        assert codec.decode_tick(codec.encode_tick(step.tick), "run-1") == step.tick
        data = codec.encode_state(step.after)
        back = codec.decode_state("run-1", data)
        assert back == step.after
        assert codec.encode_state(back) == data


@given(programs(), st.integers(1, 6))
def test_chunks_of_any_size_come_back_with_what_they_published(program: list[int], size: int) -> None:
    steps, cursor = walk(program), 0
    for first in range(0, len(steps), size):
        part = steps[first : first + size]
        events = published(part)
        chunk = codec.encode_chunk([step.tick for step in part], events, first, cursor)
        assert codec.decode_ticks("run-1", chunk) == [step.tick for step in part]
        assert codec.decode_published("run-1", chunk) == events
        cursor += len(events)


@given(programs(), st.integers(0, 40))
def test_run_goes_on_from_a_stored_state_as_if_it_had_never_been_stored(program: list[int], cut: int) -> None:
    steps = walk(program)
    cut %= len(steps)
    state, planner = codec.decode_state("run-1", codec.encode_state(steps[cut].after)), StepsPlanner()
    for step in steps[cut + 1 :]:
        state, commands = advance(state, codec.decode_tick(codec.encode_tick(step.tick), "run-1"), planner, read_text)
        assert commands == step.commands
        assert state == step.after
    assert codec.encode_state(state) == codec.encode_state(steps[-1].after)


@given(programs(8), st.data())
@settings(max_examples=40)
def test_damaged_bytes_are_read_or_refused_but_never_raise_anything_else(
    program: list[int], data: st.DataObject
) -> None:
    steps = walk(program)
    chunk = codec.encode_chunk([step.tick for step in steps], published(steps), 0, 0)
    raw = bytearray(chunk.data)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptRecord):  # some damage makes another text
        codec.decode_published("run-1", replace(chunk, data=bytes(raw)))


def fingerprint() -> str:
    """What the bytes of some long runs come to."""
    total = hashlib.sha256()
    for seed in range(30):
        program = [seed + int.from_bytes(hashlib.sha256(b"%d %d" % (seed, n)).digest()[:6]) for n in range(40)]
        program[0] = seed
        for step in walk(program):
            total.update(codec.encode_state(step.after))
        total.update(codec.encode_tick(step.tick))
    return total.hexdigest()


@pytest.mark.parametrize("seed", ["1", "2"])
def test_bytes_are_the_same_in_every_process(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    script = "import sys; sys.path.insert(0, sys.argv[1]); import test_codec_laws; print(test_codec_laws.fingerprint())"
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == fingerprint()
