"""The wire between one process and Temporal's server, which can be cut: the process is gone, as the server sees it.

What was cut off is refused for good, so that whatever is left of the process gives up at once instead of trying again:
every call is answered with `PERMISSION_DENIED`. That is the little of HTTP/2 which gRPC needs for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Coroutine
from typing import Any

_PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_ACK = _END_STREAM = 1
_END_HEADERS = 4
# In HPACK: `:status: 200` by its number in the static table, the others as literals that nobody has to remember.
_REFUSED = b"\x88\x00\x0ccontent-type\x10application/grpc\x00\x0bgrpc-status\x017"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


class Wire:
    """A port of its own that leads to a server."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._upstream = (host, int(port))
        self._is_cut = False
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self.target = ""

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """From now on nothing passes any more."""
        self._is_cut = True
        for task, writer in self._connections.items():
            writer.transport.abort()
            task.cancel()

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for _ in range(3):
            await asyncio.sleep(0)  # the loop may have taken connections in that it has not handed over yet
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = _refuse(reader, writer) if self._is_cut else _relay(reader, writer, self._upstream)
        task = asyncio.get_running_loop().create_task(_until_it_ends(serving, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)


async def _until_it_ends(serving: Coroutine[Any, Any, None], writer: asyncio.StreamWriter) -> None:
    # Either side may end the connection at any time.
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await serving
    writer.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: tuple[str, int]) -> None:
    there, back = await asyncio.open_connection(*upstream)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_pump(reader, back))
            both.create_task(_pump(there, writer))
    except* ConnectionError:
        pass
    finally:
        back.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        sink.write(data)
        await sink.drain()
    raise ConnectionResetError


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a server that refuses every call."""
    await reader.readexactly(_PREFACE)
    writer.write(_frame(_SETTINGS, 0, 0))
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3]))
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9])
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _HEADERS:
            writer.write(_frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, _REFUSED))
