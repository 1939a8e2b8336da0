"""Work on one run from its beginning to its end, for `loom run`: show a flow while it runs, then tell the outcome."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
import msgspec
from typing_extensions import override

from loom.api.times import span
from loom.cli.event_inputs import called_by, start_event
from loom.cli.flow_words import live_words, repetition_path, tree
from loom.cli.options import DEFAULT_STORE
from loom.cli.output import clean, print_json, print_line
from loom.cli.problems import Problem, Stopped
from loom.cli.session import safe_url
from loom.effects.flow_events import ActionEvent, LoopIterationEvent
from loom.effects.flow_result import FlowResult, ending_words
from loom.flows.action_types import type_words
from loom.flows.planner import FlowPlanner
from loom.flows.progress import action_progress, loop_progress
from loom.flows.state import FlowPlan
from loom.steps.errors import WorkflowCancelledByUser
from loom.steps.serializers import JsonSerializer, NotSerialisableError
from loom.store.errors import RunExists, RunNotFound
from loom.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from rich.text import Text

    from loom.flows.program import Program
    from loom.runtime.durable.info import RunInfo
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.runtime.flow import Flow
    from loom.steps.events import Event
    from loom.steps.handler import WorkflowHandler


GONE = "Stopped. The run was in memory and is gone; with --store sqlite:///runs.db it could go on."


async def begun(
    runtime: WorkerRuntime, name: str, inputs: dict[str, Any] | None, run_id: str | None, tags: dict[str, str]
) -> WorkflowHandler:
    """Find the run of this id, or start one. Inputs that are given must be the ones that the run began with."""
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


async def result_of(runtime: WorkerRuntime, handler: WorkflowHandler, stopped: asyncio.Event) -> dict[str, Any]:
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


async def _ending(runtime: WorkerRuntime, handler: WorkflowHandler) -> dict[str, Any]:
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


class View(Protocol):
    """Shows what happens to a run, for as long as it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, event: Event) -> None:
        """Something has happened."""
        ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Nothing."""


class Lines(Silence):
    """One line for every action that ends or waits and for every iteration, for those who read no terminal."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @override
    def show(self, event: Event) -> None:
        """Print it, if it is for people."""
        match event:
            case ActionEvent(status="Running"):
                pass
            case ActionEvent():
                print_line(action_words(self._program, event))
            case LoopIterationEvent():
                number = f"{event.iteration + 1}/{event.max_iterations}"
                name = event.path.rpartition("[")[0] or event.action_name
                print_line(f"Iteration  {name} {number} {event.status}, {span(event.duration)}")
            case _:
                other = event_words(event)
                if other:
                    print_line(other)
        sys.stdout.flush()


def action_words(program: Program, event: ActionEvent) -> str:
    """An action that has ended or waits, in one line."""
    path = repetition_path(program, event.name, event.repetition)
    words = f"{event.status:<10} {path} ({type_words(event.type)})"
    if event.attempt:
        words = f"{'Retrying':<10} {path} ({type_words(event.type)}), attempt {event.attempt + 1}"
    elif event.status not in ("Waiting", "Skipped"):
        words += f", {span(event.duration)}"
    return f"{words}: {event.message}" if event.message else words


def event_words(event: Event) -> str:
    """Describe other events on a flow's stream that people may want to see: a question, or a refused answer."""
    from loom.steps.events import AnswerRefusedEvent, InputRequiredEvent, InternalDispatchEvent

    if isinstance(event, AnswerRefusedEvent):
        return f"{'Refused':<10} an answer to {event.action or event.step}: {event.reason}"
    if not isinstance(event, InputRequiredEvent) or isinstance(event, InternalDispatchEvent):
        return ""
    asked = {name: event._data.get(name) for name in ("action", "event", "prompt")}
    words = f"{'Asked':<10} {asked['action'] or type(event).__name__}"
    words += f" waits for {asked['event']}" if asked["event"] else ""
    return f"{words}: {asked['prompt']}" if asked["prompt"] else words


_MARKS = {"Succeeded": ("✓", "+", "green"), "Skipped": ("-", "-", "dim"), "Cancelled": ("-", "-", "yellow")}
_BAD_MARK = ("✗", "x", "red")


class Live:
    """The top level action by action, and below it what is under way, drawn anew several times a second."""

    def __init__(self, program: Program, look: Callable[[], tuple[Program, Any] | None]) -> None:
        """`look` gives the run's own version of the program and its plan, while it is in memory."""
        from rich.console import Console
        from rich.live import Live as Region

        self._program = program
        self._look = look
        self._last: tuple[Program, FlowPlan] | None = None
        self._console = Console(file=sys.stdout, highlight=False)
        self._is_utf8 = self._console.encoding.lower().startswith("utf")
        self._region = Region(console=self._console, get_renderable=self._drawn, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._region.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._region.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        """Leave a line for what has ended at the top level or has failed anywhere; loops count in the region below."""
        from rich.text import Text

        if not isinstance(event, ActionEvent):
            other = event_words(event)
            if other:
                self._console.print(Text(clean(other)))
            return
        is_bad = event.status in ("Failed", "TimedOut")
        if event.status in ("Running", "Waiting") or (event.repetition and not is_bad):
            return
        fancy, simple, style = _MARKS.get(event.status, _BAD_MARK)
        path = repetition_path(self._program, event.name, event.repetition)
        words = f"{path} ({type_words(event.type)})"
        words += "  skipped" if event.status == "Skipped" else f"  {span(event.duration)}"
        words += f"  {event.status}: {event.message or event.code}" if is_bad else ""
        self._console.print(Text.assemble((fancy if self._is_utf8 else simple, style), f" {clean(words)}"))

    def _drawn(self) -> Text:
        """What is under way now. A run that was released stays as it was last seen."""
        from rich.text import Text

        found = self._look()
        if found is not None and isinstance(found[1], FlowPlan):
            self._last = found
        if self._last is None:
            return Text("")
        (program, plan), now = self._last, time.time()
        entries = tree(loop_progress(program, plan, now), action_progress(program, plan))
        mark = "⟳" if self._is_utf8 else "*"
        lines = [f"{'  ' * depth}{mark} {live_words(entry, now)}" for depth, entry in entries]
        shown = lines[: max(1, self._console.height - 2)]
        return Text("\n".join(clean(line) for line in shown), style="cyan", overflow="ellipsis", no_wrap=True)


class FlowRun(NamedTuple):
    """What was asked for: which flow, begun with what, and how it is told."""

    name: str
    flow: Flow
    target: str
    given: dict[str, Any]
    """What the command line gave of body, parameters, variables and headers."""
    run_id: str | None
    tags: dict[str, str]
    store: str
    as_json: bool
    quiet: bool
    others: tuple[str, ...] = ()
    """The names that this process works for beside it."""


async def performed(runtime: WorkerRuntime, stopped: asyncio.Event, wanted: FlowRun) -> tuple[str, FlowResult]:
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
    has_value = given | {key for key, known in parameters.items() if known.has_default or known.is_given}
    missing = [known.name for key, known in parameters.items() if key not in has_value]
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


async def _found(runtime: WorkerRuntime, wanted: FlowRun) -> RunInfo | None:
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


async def _begun(runtime: WorkerRuntime, wanted: FlowRun, found: RunInfo | None) -> WorkflowHandler:
    """The run of this id if it exists, else a new one. Where a start is given, it must be that of the run."""
    if found is not None and not wanted.given:
        return await runtime.handler(found.run_id)
    event = start_event(wanted.flow, wanted.given)
    return await runtime.start(wanted.name, event, run_id=wanted.run_id, tags=wanted.tags)


async def _shown(runtime: WorkerRuntime, handler: WorkflowHandler, after: int, wanted: FlowRun) -> FlowResult:
    with _view(runtime, handler.run_id, wanted) as view:
        async for event in handler.stream_events(expose_internal=True, after=after):
            view.show(event)
        try:
            result = (await handler.stop_event_result()).result
        except WorkflowCancelledByUser:
            result = FlowResult("Cancelled")
    assert isinstance(result, FlowResult)
    return result


def _view(runtime: WorkerRuntime, run_id: str, wanted: FlowRun) -> View:
    program = wanted.flow.program
    if wanted.quiet:
        return Silence()
    if not sys.stdout.isatty():
        return Lines(program)

    def look() -> tuple[Program, Any] | None:
        active = runtime.active_run(run_id)
        if active is None or not isinstance(active.code.planner, FlowPlanner):
            return None
        return active.code.planner.program, active.state.plan

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
