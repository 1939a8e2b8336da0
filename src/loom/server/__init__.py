"""The HTTP server: runs, events and streams for programs. Needs the extra `server`.

`create_app(runtime, ServerSettings(...))` is an ASGI application over a runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.server.app import create_app
    from loom.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]


def __getattr__(name: str) -> Any:
    """Bring the names when they are asked for: the command line needs parts of the server, not all of it."""
    if name == "create_app":
        try:
            from loom.server.app import create_app
        except ModuleNotFoundError as error:
            if error.name != "starlette":
                raise
            raise ImportError("The server is an extra: pip install 'loom-workflows[server]'") from error
        return create_app
    if name == "ServerSettings":
        from loom.server.settings import ServerSettings

        return ServerSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
