"""The web page of a server: its built files, read once and kept in memory. Their source is in `ui/`.

A file is found by its name in a fixed table. No request reaches the disk, so no path can lead out of the folder.
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

INDEX = "index.html"
_GZIP = ".gz"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
"""Media types that a page cannot do without: the tables of some machines have others, or none."""
_TEXTS = ("text/", "image/svg", "application/json")


class PageFile(NamedTuple):
    """One built file."""

    body: bytes
    gzip: bytes | None
    """The same, compressed when the page was built; None if it is not worth it."""
    media_type: str
    etag: str
    """A mark of the content, without quotes."""


def page_files(folder: Traversable | None = None) -> dict[str, PageFile]:
    """Return the files of the page by their names within the folder, by default of the one that Loom brings.

    Nothing is returned where the page was not built.
    """
    return _bundled() if folder is None else _read(folder)


@lru_cache(maxsize=1)
def _bundled() -> dict[str, PageFile]:
    return _read(files(__name__) / "dist")


def _read(folder: Traversable) -> dict[str, PageFile]:
    found = dict(_contents(folder)) if folder.is_dir() else {}
    return {
        name: PageFile(body, found.get(name + _GZIP), _media_type(name), hashlib.sha256(body).hexdigest()[:32])
        for name, body in found.items()
        if not name.endswith(_GZIP)
    }


def _contents(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _contents(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each.read_bytes()


def _media_type(name: str) -> str:
    known = _TYPES.get("." + name.rpartition(".")[2]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{known}; charset=utf-8" if known.startswith(_TEXTS) else known
