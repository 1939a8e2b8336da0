"""The command `loom serve`: workflows as a service that can be left running."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import duration, files, size
from loom.cli.problems import Problem, WrongUse
from loom.cli.work_commands import when_locked_option, work_options

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence

    from starlette.applications import Starlette

    from loom.cli.engine_process import Logs
    from loom.cli.reload import ReloadedProcess
    from loom.flows.limits import Limits
    from loom.runtime.project import Project
    from loom.server.settings import ServerSettings
    from loom.steps.workflow import Workflow


_SHOWN = 10
"""Workflows that a server names when it begins, at most."""
_SAME_SIGNAL_S = 0.5
_BESIDE = {
    "worker": "",
    "client": " Another process works on the runs: this one only starts, sends and reads.",
    "standby": " Another process works on the runs: this one takes over when it ends.",
}
"""What a server says about its role."""


@click.command()
@click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=files)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 is any free one."
)
@click.option("--require-key", is_flag=True, help="Ask for a key though none was made yet.")
@click.option(
    "--allowed-host", "hosts", metavar="NAME", multiple=True, help="A name that the server goes by. May be repeated."
)
@click.option(
    "--origin", "origins", metavar="URL", multiple=True, help="Let web pages of an origin in. May be repeated."
)
@click.option("--max-body", metavar="SIZE", type=size, default="1M", show_default=True, help="The largest request.")
@click.option(
    "--max-connections", metavar="N", type=click.IntRange(min=1), help="Open connections, streams among them."
)
@click.option(
    "--max-starts",
    metavar="N",
    type=click.IntRange(min=1),
    help="Runs per key that this server has begun and that are at work.",
)
@click.option("--rate", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Requests per second and key.")
@click.option(
    "--heartbeat",
    metavar="TIME",
    type=duration,
    default="25s",
    show_default=True,
    help="Streams say so often that they are alive.",
)
@click.option(
    "--response-timeout",
    metavar="TIME",
    type=duration,
    default="120s",
    show_default=True,
    help="Wait so long for the Response action of a flow that is called.",
)
@click.option(
    "--drain",
    metavar="TIME",
    type=duration,
    default="10s",
    show_default=True,
    help="When it stops, let requests finish for so long.",
)
@click.option(
    "--callback-url",
    metavar="URL",
    envvar="LOOM_CALLBACK_URL",
    show_envvar=True,
    help="Where services reach this server that call back; its own address without.",
)
@click.option(
    "--problem-webhook",
    metavar="URL",
    envvar="LOOM_PROBLEM_WEBHOOK",
    show_envvar=True,
    help="Tell this address of runs that fail, park or are stuck. LOOM_PROBLEM_SECRET signs the requests.",
)
@click.option("--reload", is_flag=True, help="For development: load the targets anew when their files are edited.")
@when_locked_option("refuse", "client", "standby")
@work_options
def serve(
    targets: Sequence[str],
    handlers: Sequence[str],
    max_iterations: int | None,
    max_duration: float | None,
    **given: Any,
) -> None:
    """Serve workflows over HTTP, and work on their runs. Goes on until SIGTERM or SIGINT.

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one; or a .json or .yaml
    file of a flow, or a folder of them. Each is served under that name, a flow under that of its file (workflow.json:
    of its folder), or under NAME with NAME=TARGET. Without a TARGET, only what is stored is served.

    Without a key only this machine may ask: `loom keys create` makes one. A server that stops finishes its requests and
    breaks its streams; a second signal ends it at once. Unfinished runs stay in the store and go on with the next one.
    """
    from loom.cli.flow_files import limits_of
    from loom.cli.work_commands import loaded, retention

    with server_extra():
        settings = _server_settings(given, limits_of(max_iterations, max_duration))
    reloaded = _reloaded(targets, given) if given["reload"] else None
    projects: list[Project] = []
    load = partial(loaded, targets, handlers, max_iterations, max_duration, given["parameter_file"], projects)
    named = load() if reloaded is None else reloaded.load(targets, handlers, load)
    given["retention"] = retention(given["retention"], named, projects)
    run_server(_serve(named, settings, given, projects, reloaded))


def _reloaded(targets: Sequence[str], given: Mapping[str, Any]) -> ReloadedProcess:
    """This process, if a supervisor has begun it; else this one becomes the supervisor, and ends here."""
    from loom.cli.engine_process import Logs
    from loom.cli.reload import ReloadedProcess, check_reload, supervise
    from loom.server.http_server import CannotListen

    reloaded = ReloadedProcess.here()
    if reloaded is not None:
        return reloaded
    check_reload(targets, given)
    try:
        code = supervise(given["host"], given["port"], Logs(given["log_level"], given["log_format"]))
    except CannotListen as error:
        raise Problem(str(error)) from error
    raise SystemExit(code)


@contextmanager
def server_extra() -> Iterator[None]:
    """Tell how to install what the server is made of, where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Problem("The server is an extra: pip install 'loom-workflows[server]'") from error


def _server_settings(given: Mapping[str, Any], limits: Limits) -> ServerSettings:
    import loom.server.http_server  # noqa: F401 - what is missing is told before anything else
    from loom.server.settings import ServerSettings

    names = (
        "require_key", "hosts", "origins", "max_body", "max_connections", "max_starts", "rate", "heartbeat", "drain",
        "response_timeout",
    )  # fmt: skip
    try:
        return ServerSettings(**{name: given[name] for name in names}, limits=limits)
    except ValueError as error:
        raise WrongUse(str(error)) from error


def run_server(work: Coroutine[Any, Any, None]) -> None:
    """Do the work in the event loop that serves best; what goes wrong is told in one line."""
    from loom.cli.engine_process import host
    from loom.server.http_server import CannotListen, NeedsKey, loop_factory

    try:
        host(work, loop_factory())
    except NeedsKey as error:
        raise WrongUse(str(error)) from error
    except CannotListen as error:
        raise Problem(str(error)) from error


async def _serve(
    named: dict[str, Workflow],
    settings: ServerSettings,
    given: Mapping[str, Any],
    projects: Sequence[Project],
    reloaded: ReloadedProcess | None = None,
) -> None:
    """Be at the address, then open the store, then work: what is in the way is told before a run is touched."""
    from loom.cli.engine_process import Bodies, Logs, health_port, stop_on_signals, until_told, work_for
    from loom.cli.session import opened, store_at
    from loom.cli.work_commands import tell_problems
    from loom.runtime.garbage import shorten_collections
    from loom.server.app import create_app
    from loom.server.http_server import bind, check_keys

    stopped, bodies, logs = stop_on_signals(), Bodies(), Logs(given["log_level"], given["log_format"])
    tell_problems(projects, logs)
    with ExitStack() as at_end:
        found = reloaded.sockets() if reloaded is not None else await bind(given["host"], given["port"])
        sockets = [at_end.enter_context(bound) for bound in found]
        async with opened(store_at(given["store"], upgrade=True), **_runtime_settings(given, sockets[0])) as runtime:
            app = create_app(runtime, settings)
            await check_keys(sockets, app.state.server)
            let_out = at_end.enter_context(logs.written())
            at_end.enter_context(health_port(runtime, given, lambda: app.state.server.draining))
            await work_for(runtime, named)
            runtime.watch_always()  # requests may hold the event loop as well
            shorten_collections()
            async with _serving(app, sockets, logs, given):
                let_out()
                if reloaded is not None:
                    reloaded.follow(stopped)
                await until_told(stopped)
                _end_at_next_signal()
                logs.tell("Stopping. Once more to stop at once.")
    logs.tell("Stopped. Unfinished runs are in the store.")
    await bodies.end()


def _runtime_settings(given: Mapping[str, Any], bound: socket.socket) -> dict[str, Any]:
    from loom.cli.work_commands import allowed_hosts, memory_options
    from loom.server.auth import is_loopback
    from loom.server.http_server import url_of

    own = url_of(bound) if is_loopback(bound.getsockname()[0]) else None  # 0.0.0.0 is no address to call back at
    return {
        **memory_options(given),
        "definitions": True,
        "callback_url": given["callback_url"] or own,
        "problem_webhook": given["problem_webhook"] or None,
        **allowed_hosts(given["allow_hosts"]),
    }


@asynccontextmanager
async def _serving(
    app: Starlette, sockets: list[socket.socket], logs: Logs, given: Mapping[str, Any]
) -> AsyncIterator[None]:
    """Serve in the block, and say where."""
    from loom.cli.session import safe_url
    from loom.server.call import offered
    from loom.server.http_server import serving

    shared = app.state.server
    async with serving(app, sockets) as server:
        names = offered(shared.runtime)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        what = ", ".join(names[:_SHOWN]) + more or "no workflows yet"
        who = "A key is asked for." if await shared.keys.required() else "No key yet: only this machine may ask."
        safe = " Safe mode: no run is recovered, all can be looked at and cancelled." if given["safe"] else ""
        beside = _BESIDE[shared.runtime.role]
        logs.tell(
            f"Serving {what} from {safe_url(given['store'])} at {server.url}. {who}{safe}{beside} "
            f"The page is {server.url}/ui/. Stop with Ctrl-C."
        )
        yield


def _end_at_next_signal() -> None:
    """Let the next signal end this process at any time: everything is stored.

    One that comes right behind the first is no second one: `timeout` signals twice, and so do programs that pass on
    what a terminal has sent to all of them.
    """
    import asyncio
    import signal
    import time

    from loom.cli.engine_process import STOP_SIGNALS

    stopping = time.monotonic()

    def end(number: int, _frame: Any) -> None:
        if time.monotonic() - stopping >= _SAME_SIGNAL_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        with suppress(NotImplementedError):  # event loops on Windows have none
            loop.remove_signal_handler(number)
        signal.signal(number, end)
