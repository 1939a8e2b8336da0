"""Records the golden histories of this version: `python tests/golden/golden_record.py 0.1`.

The histories of a version that was released are never recorded again: later versions must replay them as they are.
`--again` records those of a version that is still being made, `--case` only one of them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import golden_flows  # noqa: F401 - its cases are among all cases
import golden_history
import msgspec
from golden_cases import CASES, Stage

from loom.store import codec
from loom.store.memory import MemoryStore
from loom.store.records import RunQuery, Snapshot, StoredRun
from loom.testing import run_virtual


async def record(name: str, folder: Path) -> list[Path]:
    """Let a case happen, and write the runs that it left: its own, and those of others beside it."""
    stage = Stage()
    await CASES[name](stage, name)
    written = []
    store = MemoryStore(stage.database)
    await store.open()
    for row in await store.find(RunQuery()):
        stored = await store.export(row.run_id)
        assert stored is not None
        path = folder / (name if row.run_id == name else f"{name}-{row.workflow.lower()}")
        golden_history.write(path, _history(stored))
        written.append(path)
    await store.close()
    async with stage.process() as client:
        if (await client.get(name)).status == "running":
            (folder / name / "export.json").write_bytes(await client.export_run(name))
    return written


def _history(stored: StoredRun) -> golden_history.History:
    row = stored.row
    bare = golden_history.History(
        row.run_id, row.workflow, row.head.status, stored.start, Snapshot(0, b""), stored.chunks, stored.document
    )
    states = [state for _, state, _ in golden_history.steps(bare)]
    middle = states[len(states) // 2]
    snapshot = Snapshot(middle.ticks, codec.encode_state(middle))
    return msgspec.structs.replace(bare, snapshot=snapshot)


def main() -> None:
    """Record every case."""
    parser = argparse.ArgumentParser(description="Record the golden histories of a version.")
    parser.add_argument("version", help="which version this is, as 0.1")
    parser.add_argument("--again", action="store_true", help="the version is not released: record it again")
    parser.add_argument("--case", choices=sorted(CASES), help="only this one")
    arguments = parser.parse_args()
    folder = golden_history.GOLDEN / arguments.version
    taken = folder / arguments.case if arguments.case else folder
    if taken.exists():
        if not arguments.again:
            parser.error(f"{taken} is there already.")
        shutil.rmtree(taken)
    names = [arguments.case] if arguments.case else list(CASES)
    written = [path for name in names for path in run_virtual(record(name, folder))]
    ticks = sum(len(golden_history.read(path)[1]) for path in written)
    sys.stdout.write(f"{len(written)} histories, {ticks} ticks\n")


if __name__ == "__main__":
    main()
