"""The command `loom ui`: the web page over a store, with no engine. Nothing is changed by it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import store_option

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@store_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="The port; 0 is any free one."
)
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open the page in a browser.")
def ui(**given: Any) -> None:
    """Look at the runs of a store in a browser. Goes on until SIGTERM or SIGINT.

    The page is for this machine only, and changes nothing: no run is started, told or worked on. It may be used beside
    an engine that works on the same store. If the store has keys, the page asks for one.
    """
    from loom.cli.serve_command import run_server, server_extra

    with server_extra():
        import loom.server.http_server  # noqa: F401 - what is missing is told before anything else
    run_server(_show(given))


async def _show(given: Mapping[str, Any]) -> None:
    from loom.cli.engine_process import Logs, stop_on_signals
    from loom.cli.session import opened, safe_url, store_beside
    from loom.server.app import create_app
    from loom.server.http_server import bind, serving
    from loom.server.settings import ServerSettings

    stopped, logs = stop_on_signals(), Logs()
    with ExitStack() as at_end:
        sockets = [at_end.enter_context(bound) for bound in await bind("127.0.0.1", given["port"])]
        # Without a workflow the runtime is a client: it takes no lock and owns no run.
        async with opened(store_beside(given["store"])) as runtime:
            at_end.enter_context(logs.written())()
            app = create_app(runtime, ServerSettings(read_only=True))
            async with serving(app, sockets) as server:
                page = f"{server.url}/ui/"
                logs.tell(f"Showing {safe_url(given['store'])}, read-only, at {page}. Stop with Ctrl-C.")
                if given["opens"] and _has_screen():
                    click.launch(page)
                await stopped.wait()


def _has_screen() -> bool:
    """Tell whether a browser has a screen to open on.

    On a server without one, what opens pages complains on the terminal, or takes the terminal for a browser of texts.
    """
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
