"""A run of a flow from its beginning to its end, for `loom run`. May import every room."""

from __future__ import annotations

import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from loom.cli.flow_views import Lines, Live, Silence
from loom.cli.options import DEFAULT_STORE
from loom.cli.outcomes import GONE
from loom.cli.problems import Problem, Stopped
from loom.cli.session import safe_url
from loom.cli.shown import clean, print_json, print_line
from loom.cli.starting import called_by, start_event
from loom.effects.flow_result import FlowResult, ending_words
from loom.flows.planner import FlowPlanner
from loom.steps.errors import WorkflowCancelledByUser
from loom.store.errors import RunExists, RunNotFound

if TYPE_CHECKING:
    from loom.cli.flow_views import View
    from loom.flows.program import Program
    from loom.runtime.durable.info import RunInfo
    from loom.runtime.durable.working import WorkingRuntime
    from loom.runtime.flow import Flow
    from loom.steps.handler import WorkflowHandler


class FlowRun(NamedTuple):
    """What was asked for: which flow, begun with what, and how it is told."""

    name: str
    flow: Flow
    target: str
    given: dict[str, Any]
    """body, parameters, variables, headers: those that were given."""
    run_id: str | None
    tags: dict[str, str]
    store: str
    as_json: bool
    quiet: bool
    others: tuple[str, ...] = ()
    """The names that this process works for beside it."""


async def performed(runtime: WorkingRuntime, stopped: asyncio.Event, wanted: FlowRun) -> tuple[str, FlowResult]:
    """Begin the run or go on with it, show it, and wait for its end or until this process is told to stop."""
    found = await _found(runtime, wanted)
    handler = await _begun(runtime, wanted, found)
    if not wanted.quiet:
        how = "" if found is None else " goes on" if found.status == "running" else " has ended before"
        print_line(f"Run {handler.run_id} of {wanted.name}{how}")
        sys.stdout.flush()
        if found is None:
            _tell_doubts(wanted)
    after = found.events - 1 if found is not None else -1
    ending = asyncio.ensure_future(_shown(runtime, handler, after, wanted))
    stop = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((ending, stop), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        if not ending.done():
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
    if not ending.cancelled():
        return handler.run_id, ending.result()
    raise Stopped(_how_to_go_on(wanted, handler.run_id))


def _tell_doubts(wanted: FlowRun) -> None:
    """What is likely to go wrong: it may be all that is said, for errors of secure actions are not shown."""
    given = {name.lower() for name in wanted.given.get("parameters", {})}
    parameters = wanted.flow.program.parameters
    missing = [known.name for key, known in parameters.items() if not known.has_default and key not in given]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        click.echo(clean(f"Note: no value and no default for the parameters {names}."), err=True)
    elsewhere = sorted(called_by(wanted.flow) - {wanted.name, *wanted.others})
    if elsewhere:
        names = ", ".join(f"'{name}'" for name in elsewhere)
        click.echo(clean(f"Note: it calls {names}, which nobody here works for: name the file with --also."), err=True)
    if wanted.flow.warnings:
        count = f"{len(wanted.flow.warnings)} warnings" if len(wanted.flow.warnings) > 1 else "a warning"
        place = shlex.quote(wanted.target.rpartition("=")[2])
        click.echo(clean(f"Note: {wanted.name} has {count}: see `loom validate {place}`."), err=True)


async def _found(runtime: WorkingRuntime, wanted: FlowRun) -> RunInfo | None:
    """The run as it is before anything was asked of it, if it is there already."""
    if wanted.run_id is None:
        return None
    try:
        info = await runtime.get(wanted.run_id)
    except RunNotFound:
        return None
    if info.workflow != wanted.name:
        raise RunExists(wanted.run_id, f"as a run of {info.workflow!r}")
    return info


async def _begun(runtime: WorkingRuntime, wanted: FlowRun, found: RunInfo | None) -> WorkflowHandler:
    """The run of this id if it exists, else a new one. Where a start is given, it must be that of the run."""
    if found is not None and not wanted.given:
        return await runtime.handler(found.run_id)
    event = start_event(wanted.flow, wanted.given)
    return await runtime.start(wanted.name, event, run_id=wanted.run_id, tags=wanted.tags)


async def _shown(runtime: WorkingRuntime, handler: WorkflowHandler, after: int, wanted: FlowRun) -> FlowResult:
    with _view(runtime, handler.run_id, wanted) as view:
        async for event in handler.stream_events(expose_internal=True, after=after):
            view.show(event)
        try:
            result = (await handler.stop_event_result()).result
        except WorkflowCancelledByUser:
            result = FlowResult("Cancelled")
    assert isinstance(result, FlowResult)
    return result


def _view(runtime: WorkingRuntime, run_id: str, wanted: FlowRun) -> View:
    program = wanted.flow.program
    if wanted.quiet:
        return Silence()
    if not sys.stdout.isatty():
        return Lines(program)

    def look() -> tuple[Program, Any] | None:
        resident = runtime.resident(run_id)
        if resident is None or not isinstance(resident.code.planner, FlowPlanner):
            return None
        return resident.code.planner.program, resident.state.plan

    return Live(program, look)


def _how_to_go_on(wanted: FlowRun, run_id: str) -> str:
    if wanted.store.startswith("memory:"):
        return GONE
    store = "" if wanted.store == DEFAULT_STORE else f" --store {shlex.quote(safe_url(wanted.store))}"
    command = f"loom run {shlex.quote(wanted.target)}{store} --run-id {shlex.quote(run_id)}"
    return f"Stopped. Run {run_id!r} is in the store: it goes on with `{command}`."


def tell_result(wanted: FlowRun, run_id: str, result: FlowResult) -> None:
    """Print how a flow ended; one that has not succeeded is a problem."""
    if wanted.as_json:
        print_json({"run_id": run_id, "workflow": wanted.name, **msgspec.to_builtins(result)})
        if result.status != "Succeeded":
            raise SystemExit(Problem.exit_code)
        return
    print_line(f"Status: {result.status}")
    if result.response is not None:
        answer = result.response
        print_line(f"Response: {answer.get('statusCode', 200)} {_whole(answer.get('body'))}".rstrip())
    for name, value in result.outputs.items():
        print_line(f"Output {name}: {_whole(value)}")
    if result.status != "Succeeded":
        error = result.error or {}
        code = f" ({error['code']})" if error.get("code") else "" if error.get("message") else "."
        sys.stdout.flush()
        raise click.ClickException(clean(f"Run {run_id!r} has ended {ending_words(result)}{code}"))


def _whole(value: Any) -> str:
    """A value that was asked for: all of it."""
    import json

    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
