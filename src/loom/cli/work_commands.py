"""The commands `loom worker` and `loom run`: processes that work on runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import (
    allow_host_option,
    duration,
    files,
    handlers_option,
    json_object,
    json_option,
    json_value,
    limit_options,
    parameters_of,
    parameters_option,
    size,
    start_options,
    store_option,
    tag_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loom.cli.engine_process import Logs
    from loom.cli.options import Decorated
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.runtime.project import Project
    from loom.steps.workflow import Workflow


_WATCHED = (
    click.option("--health-host", default="127.0.0.1", show_default=True, help="The address of --health-port."),
    click.option(
        "--health-port",
        metavar="N",
        type=click.IntRange(0, 65535),
        help="Answer /live, /ready and /metrics on this port too, also while the event loop is held.",
    ),
    click.option(
        "--watchdog",
        metavar="TIME",
        type=duration,
        default="1s",
        show_default=True,
        help="Log what holds the event loop for so long; 0: never.",
    ),
    click.option(
        "--max-memory",
        metavar="SIZE",
        type=size,
        help="Take no more work while the process uses more memory, as in 2G.",
    ),
    click.option(
        "--max-state",
        metavar="SIZE",
        type=size,
        default="64M",
        show_default=True,
        help="Park a run whose state is larger. Large ones hold up others while they are stored.",
    ),
)
"""How a process that is left running looks after itself."""


def recovery_options(command: Decorated) -> Decorated:
    """The options of what becomes of runs whose process has died."""
    for option in (
        click.option(
            "--safe", is_flag=True, help="Recover no run: only look and cancel. What comes is stored, and waits."
        ),
        click.option(
            "--probation",
            metavar="TIME",
            type=duration,
            default="2s",
            show_default=True,
            help="Recover a run alone for so long that may have killed its process; doubled with every death.",
        ),
        click.option(
            "--lease",
            metavar="TIME",
            type=duration,
            default="15s",
            show_default=True,
            help="Others take over the runs of this process when it is silent for so long.",
        ),
    ):
        command = option(command)
    return command


def when_locked_option(*roles: str) -> Callable[[Decorated], Decorated]:
    """`--when-locked ROLE`, with the roles that make sense for a command."""
    return click.option(
        "--when-locked",
        type=click.Choice(roles),
        default="refuse",
        show_default=True,
        help="If another process works on the SQLite file: end; only start, send and read; or that until it takes over."
        if "client" in roles
        else "If another process works on the SQLite file: end, or wait to take over.",
    )


def work_options(command: Decorated) -> Decorated:
    """The options of commands that work on runs until they are stopped."""
    for option in (
        *_WATCHED,
        store_option,
        allow_host_option,
        limit_options,
        handlers_option,
        parameters_option,
        click.option(
            "--retention", metavar="TIME", type=duration, help="Delete runs so long after their end, as in 30d."
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
            help="What is logged to stderr.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="How it is logged; json: one object per line, for programs.",
        ),
        click.option("--max-in-memory", type=click.IntRange(min=1), help="At most so many runs in memory."),
        click.option(
            "--max-descendants",
            type=click.IntRange(min=1),
            default=1000,
            show_default=True,
            help="At most this many runs in memory that descend from one run.",
        ),
        click.option(
            "--idle-timeout",
            metavar="TIME",
            type=duration,
            help="Release a run from memory after it has been idle for TIME.  "
            "[default: 60s; up to 1d if a step waits inside of its body]",
        ),
        click.option(
            "--max-suspended",
            type=click.IntRange(min=0),
            default=5_000,
            show_default=True,
            help="Without --idle-timeout: how many runs with such a step stay in memory after 60s.",
        ),
        recovery_options,
        click.option("--name", default="", help="What this process is called among others."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True, shell_complete=files)
@when_locked_option("refuse", "standby")
@work_options
def worker(
    targets: Sequence[str],
    store: str,
    handlers: Sequence[str],
    max_iterations: int | None,
    max_duration: float | None,
    allow_hosts: Sequence[str],
    log_level: str,
    log_format: Any,
    **settings: Any,
) -> None:
    """Work for workflows until SIGTERM or SIGINT. Takes up their runs, and those that are started meanwhile.

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one; or a .json or .yaml
    file of a flow, or a folder of them. Runs are stored under that name, those of flows under that of their file
    (workflow.json: of its folder), or under NAME with NAME=TARGET. Unfinished runs stay in the store and go on with the
    next worker.
    """
    from loom.cli.engine_process import Bodies, Logs, engine, host
    from loom.cli.session import safe_url
    from loom.runtime.garbage import shorten_collections

    projects: list[Project] = []
    named = loaded(targets, handlers, max_iterations, max_duration, settings["parameter_file"], projects)
    settings["retention"] = retention(settings["retention"], named, projects)

    async def work() -> None:
        bodies, logs = Bodies(), Logs(log_level, log_format)
        tell_problems(projects, logs)
        options = {**memory_options(settings), **allowed_hosts(allow_hosts)}
        async with engine(store, named, logs, given=settings, **options) as (runtime, stopped):
            shorten_collections()
            logs.tell(f"{doing(settings, runtime)} for {', '.join(named)} on {safe_url(store)}. Stop with Ctrl-C.")
            await stopped.wait()
        logs.tell("Stopped. Unfinished runs are in the store.")
        await bodies.end()

    host(work())


def doing(given: Mapping[str, Any], runtime: WorkerRuntime) -> str:
    """What a process says that it does."""
    if runtime.role == "standby":
        return "Standing by"
    return "Only looking and cancelling (--safe)" if given["safe"] else "Working"


def loaded(
    targets: Sequence[str],
    handlers: Sequence[str],
    max_iterations: int | None,
    max_duration: float | None,
    parameters: Any = None,
    projects: list[Project] | None = None,
) -> dict[str, Workflow]:
    """What targets name, with the code that registers what flows call.

    Flows get the data of a file of parameters. Folders that are projects are added to `projects`.
    """
    from loom.cli.flow_files import limits_of
    from loom.cli.targets import load_handlers, named_workflows

    load_handlers(handlers)
    return named_workflows(targets, limits_of(max_iterations, max_duration), parameters_of(parameters), projects)


def retention(asked: float | None, named: Mapping[str, Workflow], projects: Sequence[Project]) -> float | None:
    """How long ended runs are kept: as asked, else as `host.json` says if nothing but that project is worked for."""
    if asked is not None or len(projects) != 1 or len(projects[0]) != len(named):
        return asked
    return projects[0].retention_s


def tell_problems(projects: Sequence[Project], logs: Logs) -> None:
    """Say once, when a process begins, what its projects lack."""
    from loom.cli.flow_files import by_file, problem_lines
    from loom.runtime.project_checks import project_problems

    for project in projects:
        beside = [each for each in project.warnings if each.file.parent == project.folder]
        for file, problems in by_file([*beside, *project_problems(project)]).items():
            for line in problem_lines(file, problems):
                logs.tell(line.replace(": error: ", ": warning: ", 1))


def memory_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a process among the options that were given: its name, its memory, what is kept and watched."""
    names = (
        "name", "idle_timeout", "max_suspended", "max_in_memory", "max_descendants", "max_memory", "max_state",
        "retention", "lease", "probation", "safe", "when_locked",
    )  # fmt: skip
    # None would mean for ever.
    found = {name: given[name] for name in names if name != "idle_timeout" or given[name] is not None}
    return {**found, "watchdog": given["watchdog"] or None}


def allowed_hosts(hosts: Sequence[str]) -> dict[str, Any]:
    """Make the setting of what HTTP actions may reach: these hosts and the ones of the environment."""
    if not hosts:
        return {}
    import os

    from loom.effects.actions.ssrf import ENVIRONMENT_VARIABLE

    return {"http_allow": (*hosts, *filter(None, os.environ.get(ENVIRONMENT_VARIABLE, "").split(",")))}


@click.command()
@click.argument("target", shell_complete=files)
@click.option("--input", "inputs", metavar="JSON", type=json_object, help="The inputs of the run; @file reads them.")
@click.option("--body", metavar="JSON", type=json_value, help="The body that a flow begins with; @file reads it.")
@start_options
@click.option("--run-id", metavar="ID", help="The id of the run; one that exists goes on.")
@click.option("--quiet", "-q", is_flag=True, help="Show nothing of a flow before its end.")
@click.option(
    "--also",
    metavar="TARGET",
    multiple=True,
    shell_complete=files,
    help="Work for this too, for a flow that calls it. May be repeated.",
)
@tag_option("Give the run a tag. May be repeated.")
@handlers_option
@limit_options
@allow_host_option
@store_option
@json_option
def run(
    target: str,
    handlers: Sequence[str],
    max_iterations: int | None,
    max_duration: float | None,
    allow_hosts: Sequence[str],
    **given: Any,
) -> None:
    """Run a workflow to its end and print its result.

    TARGET is module:name or file.py:name with --input, or a .json or .yaml file of a flow with --body, --parameter,
    --variable and --header. A flow is shown while it runs. The run is in the store from its start on: if this process
    dies, the same command with the same --run-id goes on, with the same input or without. With --store memory://
    nothing is kept.
    """
    from loom.cli.problems import WrongUse
    from loom.cli.targets import project_around
    from loom.runtime.flow import Flow

    found = loaded([target], handlers, max_iterations, max_duration, given["parameter_file"])
    if len(found) != 1:
        raise WrongUse(f"{target} has {len(found)} flows: name the file of one.")
    ((name, workflow),) = found.items()
    also = (*given["also"], *project_around(target))
    others = loaded(also, (), max_iterations, max_duration, given["parameter_file"])
    given["others"] = {other: code for other, code in others.items() if other != name}
    if isinstance(workflow, Flow):
        _run_flow(name, workflow, target, allowed_hosts(allow_hosts), given)
    else:
        _run_workflow(name, workflow, given)


def _run_workflow(name: str, workflow: Workflow, given: dict[str, Any]) -> None:
    from loom.cli.engine_process import Logs, engine, host, until_stopped
    from loom.cli.problems import WrongUse
    from loom.cli.run_to_end import begun, result_of, tell_outcome

    of_flows = [key for key in ("parameters", "parameter_file", "variables", "headers") if given[key]]
    if given["body"] is not None or of_flows:
        raise WrongUse(f"{name} is a workflow in Python: it takes --input. Body, parameters, variables are for flows.")

    async def work() -> dict[str, Any]:
        async with engine(given["store"], {**given["others"], name: workflow}, Logs()) as (runtime, stopped):
            handler = await begun(runtime, name, given["inputs"], given["run_id"], dict(given["tags"]))
            return await result_of(runtime, handler, stopped)

    tell_outcome(host(until_stopped(work())), given["as_json"])


def _run_flow(name: str, flow: Any, target: str, allowed: dict[str, Any], given: dict[str, Any]) -> None:
    from loom.cli.engine_process import Logs, engine, host, until_stopped
    from loom.cli.options import given_to_flow
    from loom.cli.problems import WrongUse
    from loom.cli.run_to_end import FlowRun, performed, tell_result

    if given["inputs"] is not None:
        raise WrongUse(f"{name} is a flow: it begins with --body, not with --input.")
    wanted = FlowRun(
        name=name,
        flow=flow,
        target=target,
        given=given_to_flow({**given, "parameter_file": None}, flow),  # it has what the file says of it
        run_id=given["run_id"],
        tags=dict(given["tags"]),
        store=given["store"],
        as_json=given["as_json"],
        quiet=given["quiet"] or given["as_json"],
        others=tuple(given["others"]),
    )

    async def work() -> Any:
        settings = {**allowed, "schedules": False}  # one run is asked for, and not those that its trigger would start
        named = {**given["others"], name: flow}
        async with engine(wanted.store, named, Logs(), **settings) as (runtime, stopped):
            return await performed(runtime, stopped, wanted)

    run_id, result = host(until_stopped(work()))
    tell_result(wanted, run_id, result)
