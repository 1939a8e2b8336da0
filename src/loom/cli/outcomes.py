"""A run from its beginning to its end, for `loom run`: its result on stdout, or what it failed with on stderr.

May import loom.runtime, loom.steps and loom.store.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from loom.cli.problems import Problem, Stopped
from loom.cli.shown import clean, print_json, print_line
from loom.steps.errors import WorkflowCancelledByUser
from loom.steps.jsonable import NotSerialisableError
from loom.steps.serializers import JsonSerializer
from loom.store.errors import RunExists, RunNotFound
from loom.store.memory import MemoryStore

if TYPE_CHECKING:
    from loom.runtime.durable.working import WorkingRuntime
    from loom.steps.handler import WorkflowHandler

GONE = "Stopped. The run was in memory and is gone; with --store sqlite:///runs.db it could go on."


async def begun(
    runtime: WorkingRuntime, name: str, inputs: dict[str, Any] | None, run_id: str | None, tags: dict[str, str]
) -> WorkflowHandler:
    """The run of this id if it exists, else a new one. Where inputs are given, they must be those of the run."""
    if run_id is not None and inputs is None:
        try:
            info = await runtime.get(run_id)
        except RunNotFound:
            pass
        else:
            if info.workflow != name:
                raise RunExists(run_id, f"as a run of {info.workflow!r}")
            return await runtime.handler(run_id)
    return await runtime.start(name, inputs or {}, run_id=run_id, tags=tags)


async def result_of(runtime: WorkingRuntime, handler: WorkflowHandler, stopped: asyncio.Event) -> dict[str, Any]:
    """Wait for the end of a run, or until this process is told to stop."""
    ending = asyncio.ensure_future(_ending(runtime, handler))
    stop = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((ending, stop), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (ending, stop):
            if not task.done():
                task.cancel()
    if ending.done() and not ending.cancelled():
        return ending.result()
    if isinstance(runtime.store, MemoryStore):
        raise Stopped(GONE)
    raise Stopped(f"Stopped. Run {handler.run_id!r} is in the store: it goes on where somebody works for it.")


async def _ending(runtime: WorkingRuntime, handler: WorkflowHandler) -> dict[str, Any]:
    found: dict[str, Any] = {"run_id": handler.run_id}
    try:
        event = await handler.stop_event_result()
    except WorkflowCancelledByUser:
        return {**found, "status": "cancelled", "result": None, "error": None}
    except Exception as error:
        info = await runtime.get(handler.run_id)
        if info.status == "running":
            raise  # it is this process that has a problem
        return {**found, "status": info.status, "result": None, "error": info.error or str(error)}
    result = event.result
    return {**found, "status": "completed", "result": event if result is None else result, "error": None}


def tell_outcome(found: dict[str, Any], as_json: bool) -> None:
    """Print the result of a run; one that has not completed is a problem."""
    result = found["result"]
    if as_json:
        print_json({**found, "result": _plain(result)})
        if found["status"] != "completed":
            raise SystemExit(Problem.exit_code)
    elif found["status"] != "completed":
        reason = f": {found['error']}" if found["error"] else "."
        raise Problem(clean(f"Run {found['run_id']!r} {_WORDS[found['status']]}{reason}"))
    elif isinstance(result, str):
        print_line(result)
    else:
        print_line(json.dumps(_plain(result), ensure_ascii=False))


_WORDS = {"failed": "has failed", "cancelled": "was cancelled"}


def _plain(result: Any) -> Any:
    """A result as JSON has it; what JSON has no form for, as its text."""
    try:
        written = JsonSerializer().serialize_value(result)
    except (NotSerialisableError, ValueError):
        return str(result)
    return written["value"] if isinstance(written, dict) and written.get("__is_pydantic") else written
