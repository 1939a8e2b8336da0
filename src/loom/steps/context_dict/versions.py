"""Context dicts of every version brought to the shape of version 2. May import core.config, pydantic and the shapes.

Version 0, the one without a number, had JSON text in place of lists and sent every event to every queue; each step
threw away what it does not take. Its events for the stream and its log of the past are no work, so they stay behind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from loom.core.config import specs_of
from loom.steps.context_dict.problems import malformed, path_of
from loom.steps.context_dict.shapes import AttemptShape, ContextShape, LoomShape, WorkerShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.config import BrokerConfig

ShapeT = TypeVar("ShapeT", bound=BaseModel)

CURRENT_VERSION = 2
LOOM_FORMAT = 1


class Version0(BaseModel):
    """A context dict of the time before versions."""

    model_config = ConfigDict(defer_build=True)

    state: dict[str, Any] = {}
    queues: dict[str, str] = {}
    """By step, and by waiter for those in `waiting_ids`."""
    event_buffers: dict[str, dict[str, list[str]]] = {}
    """By step or buffer id, then by event type."""
    in_progress: dict[str, list[str]] = {}
    is_running: bool = False
    waiting_ids: list[str] = []


def parse(data: Mapping[str, Any], config: BrokerConfig, renames: Mapping[str, str]) -> tuple[ContextShape, bool]:
    """A dict as version 2 has it, and whether it comes from version 0; `ContextSerdeError` if it is none."""
    version = data.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise malformed("version", f"{version!r} is not the number of a version.")
    if version > CURRENT_VERSION:
        raise malformed(
            "version",
            f"Cannot load serialized workflow context with version={version}; this library supports up to version "
            f"{CURRENT_VERSION}.",
        )
    if version == 0:
        if data.get("workers"):
            raise malformed("version", "it is missing, although the dict has workers.")
        return _from_version_0(_check(Version0, data), config, renames), True
    shape = _check(ContextShape, _from_version_1(data) if version == 1 else data)
    if shape.loom is not None and shape.loom.format > LOOM_FORMAT:
        raise malformed("loom.format", f"{shape.loom.format} is newer than what can be read here, {LOOM_FORMAT}.")
    return shape, False


def _check(shape: type[ShapeT], data: Any) -> ShapeT:
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise malformed(path_of(first["loc"]), first["msg"]) from error
    except RecursionError as error:
        raise malformed("", "it is nested too deeply.") from error


def _from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """Version 1 had the bare events of what was in progress."""
    workers = data.get("workers")
    if not isinstance(workers, dict):
        return dict(data)
    return {**data, "workers": {step: _worker_of_version_1(worker) for step, worker in workers.items()}}


def _worker_of_version_1(worker: Any) -> Any:
    if not isinstance(worker, dict) or not isinstance(worker.get("in_progress"), list):
        return worker
    attempts = [{"event": entry} if isinstance(entry, str) else entry for entry in worker["in_progress"]]
    return {**worker, "in_progress": attempts}


def _from_version_0(old: Version0, config: BrokerConfig, renames: Mapping[str, str]) -> ContextShape:
    waiting = set(old.waiting_ids)
    workers: dict[str, WorkerShape] = {}
    kept: list[str] = []
    for name, texts in old.in_progress.items():
        workers.setdefault(name, WorkerShape()).in_progress = [AttemptShape(event=text) for text in texts]
    for name, text in old.queues.items():
        events = _list_of_texts(f"queues.{name}", text)
        if name in waiting:
            # Nobody waits any more until the step has run again; till then these are early events.
            kept += events
        else:
            workers.setdefault(name, WorkerShape()).queue = [AttemptShape(event=event) for event in events]
    for name, by_type in old.event_buffers.items():
        step, buffer = _owner_of_buffer(name, list(by_type), config, renames)
        collected = [event for events in by_type.values() for event in events]
        if collected:
            workers.setdefault(step, WorkerShape()).collected_events[buffer] = collected
    return ContextShape(
        state=old.state, is_running=old.is_running, workers=workers, loom=LoomShape(kept={"": kept}) if kept else None
    )


def _list_of_texts(path: str, text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise malformed(path, f"a list as JSON text is wanted: {error}") from error
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise malformed(path, "a list of events as JSON text is wanted.")
    return found


def _owner_of_buffer(name: str, types: list[str], config: BrokerConfig, renames: Mapping[str, str]) -> tuple[str, str]:
    """The step and the buffer that a name means: of a step, or of a buffer whose events only one step takes."""
    if renames.get(name, name) in specs_of(config):
        return name, "default"
    owners = [spec.name for spec in config.steps if all(accepted in spec.accepts for accepted in types)]
    if types and len(owners) == 1:
        # Without an id of its own a buffer was named after its types.
        return owners[0], "default" if all(accepted in name for accepted in types) else name
    return name, "default"
