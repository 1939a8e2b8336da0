"""Histories that were recorded by this version and by earlier ones replay to the same states and commands."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import golden_check
import golden_flows  # noqa: F401 - its cases are among all cases
import golden_history
import golden_record
import pytest
from golden_cases import CASES, Stage
from golden_workflows import Answer, Note, Patient, Telling, Whole

from loom import Workflow
from loom.core.ticks import TickResume
from loom.steps.planner import StepsPlanner
from loom.store import codec
from loom.store.memory import MemoryStore
from loom.store.operations import ImportRun
from loom.store.records import RunHead, RunRow, StoredRun
from loom.testing import run_virtual

FOLDERS = golden_history.folders()


def _id(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


@pytest.mark.parametrize("folder", FOLDERS, ids=_id)
def test_a_recorded_history_gives_the_same_states_commands_and_stream(folder: Path) -> None:
    assert golden_check.problems(folder) == []


class SlowPlanner(StepsPlanner):
    """Offers no fast lane, so that every result goes the slow way."""

    def plain_taker(self, *_facts: object) -> None:
        """Promise nothing."""

    def ends_plainly(self, *_facts: object) -> bool:
        """Promise nothing."""
        return False


@pytest.mark.parametrize("folder", FOLDERS, ids=_id)
def test_the_fast_lane_and_the_slow_way_give_the_same_states_and_commands(folder: Path) -> None:
    history, _ = golden_history.read(folder)
    if history.document is None:
        slow = golden_history.steps(history, planner=SlowPlanner())
        assert list(golden_history.steps(history)) == list(slow)


@pytest.mark.parametrize("folder", FOLDERS, ids=_id)
def test_what_else_was_stored_can_be_read(folder: Path) -> None:
    history, _ = golden_history.read(folder)
    start = codec.decode_start(history.run_id, history.start)
    assert start.event is not None or start.inputs is not None
    for _, state, _ in golden_history.steps(history):
        again = codec.decode_state(history.run_id, codec.encode_state(state))
        assert golden_history.digest(again) == golden_history.digest(state)


@pytest.mark.parametrize("seed", ["1", "4711"])
def test_no_digest_follows_the_order_of_hashes(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, golden_check.__file__],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{len(FOLDERS)} histories\n"), done.stderr


def test_every_case_is_recorded() -> None:
    assert set(CASES) <= {folder.name for folder in FOLDERS if folder.parent.name == "0.1"}


def test_a_change_of_the_engine_would_be_noticed(tmp_path: Path) -> None:
    [folder] = [folder for folder in FOLDERS if _id(folder) == "0.1/retries"]
    other = tmp_path / "retries"
    shutil.copytree(folder, other)
    chunks = (other / "chunks.jsonl").read_text()
    (other / "chunks.jsonl").write_text(chunks.replace('"retry_delay_s":30.0', '"retry_delay_s":31.0', 1))
    assert golden_check.problems(other)[0].startswith("retries: tick")


async def test_recording_gives_a_history_that_can_be_checked(tmp_path: Path) -> None:
    [folder] = await golden_record.record("multi_slot_join", tmp_path)
    assert golden_check.problems(folder) == []


def test_an_unfinished_run_of_an_earlier_version_goes_on() -> None:
    assert run_virtual(_go_on((golden_history.GOLDEN / "0.1" / "unfinished" / "export.json").read_bytes())) == "late"


@pytest.mark.parametrize(
    ("case", "workflow", "result"), [("wrong_answer", Patient, "late"), ("wrong_answer_to_a_step", Whole, 4)]
)
def test_a_run_that_a_wrong_answer_had_failed_in_an_earlier_version_is_healed(
    case: str, workflow: type[Workflow], result: object
) -> None:
    history, _ = golden_history.read(golden_history.GOLDEN / "0.1" / case)
    assert run_virtual(_heal(history, workflow(timeout=None))) == result


async def _heal(history: golden_history.History, workflow: Workflow) -> object:
    stage = Stage()
    ticks = sum(chunk.ticks for chunk in history.chunks)
    head = RunHead("failed", ticks, sum(chunk.events for chunk in history.chunks), 1_700_000_000.0)
    row = RunRow(history.run_id, history.workflow, 1_700_000_000.0, head, ended_at=1_700_000_000.0)
    store = MemoryStore(stage.database)
    await store.open()
    assert await store.apply([ImportRun(StoredRun(row, history.start, None, history.chunks))]) == [True]
    await store.close()
    async with stage.process(workflow) as runtime:
        # As it is, a retry would only repeat the failure: nothing says that the answer had not been checked.
        await runtime.retry(history.run_id)
        await asyncio.sleep(10)
        assert (await runtime.get(history.run_id)).status == "failed"
        await runtime.retry(history.run_id, event=Answer(text="late", about="b"))
        await asyncio.sleep(10)
        if history.workflow == "Patient":
            await runtime.send_event(history.run_id, Answer(text="late", about="b"))
        return await (await runtime.handler(history.run_id))


async def _go_on(exported: bytes) -> object:
    async with Stage().process(Patient(timeout=None)) as runtime:
        run_id = await runtime.import_run(exported)
        # Its first wait runs into its timeout, and the second one finds what was sent to it while nobody worked.
        result = await (await runtime.handler(run_id))
        assert any([isinstance(tick, TickResume) async for _, _, tick in runtime.history(run_id)])
        return result


def test_an_unfinished_stream_of_an_earlier_version_goes_on() -> None:
    exported = (golden_history.GOLDEN / "0.1" / "unfinished_stream" / "export.json").read_bytes()
    assert run_virtual(_stream_on(exported)) == "yes"


async def _stream_on(exported: bytes) -> object:
    """There the tokens counted among all effects, and do so until the end of the execution."""
    Telling.tokens = [3]
    async with Stage().process(Telling(timeout=None)) as runtime:
        run_id = await runtime.import_run(exported)
        result = await (await runtime.handler(run_id))
        events = [event async for event in (await runtime.handler(run_id)).stream_events(after=-1)]
        told = [event.text for event in events if isinstance(event, Note)]
        assert told == [*(f"token {number}" for number in range(3)), "heard yes"]
        return result
