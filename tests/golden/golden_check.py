"""Replays every recorded history and compares it with its digests: `python tests/golden/golden_check.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import golden_history

from loom.store import codec


def problems(folder: Path) -> list[str]:
    """What is not as it was recorded."""
    history, recorded = golden_history.read(folder)
    found = []
    replayed = golden_history.digests(history)
    for number, (then, now) in enumerate(zip(recorded, replayed, strict=True)):
        if then != now:
            what = "state" if then.state != now.state else "commands"
            found.append(f"{folder.name}: tick {number} ({then.tick}) gives another {what}")
            break
    middle = codec.decode_state(history.run_id, history.snapshot.data)
    if golden_history.digest(middle) != recorded[middle.ticks - 1].state:
        found.append(f"{folder.name}: its snapshot is read as another state")
    elif golden_history.digests(history, middle) != recorded[middle.ticks :]:
        found.append(f"{folder.name}: its snapshot and the ticks behind it lead elsewhere")
    if golden_history.stored_stream(history) != golden_history.published(history):
        found.append(f"{folder.name}: its stream is not what its ticks publish")
    return found


if __name__ == "__main__":
    all_folders = golden_history.folders()
    all_problems = [problem for folder in all_folders for problem in problems(folder)]
    sys.stdout.write("\n".join([*all_problems, f"{len(all_folders)} histories", ""]))
    sys.exit(bool(all_problems) or not all_folders)
