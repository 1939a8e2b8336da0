"""The settings of mkdocs, with the folders of the navigation as their index pages list them."""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+\.md)\)")
_NAV = re.compile(r"^nav:\n((?:  .*\n)+)", re.MULTILINE)
_FOLDER = re.compile(r"^( *)- (?:([\w -]+): )?([\w-]+/)\n", re.MULTILINE)


def with_folders(settings: str, pages: dict[str, str]) -> str:
    """Write out each folder that the navigation names, in the order of the links on its index page.

    It is done in the text: what mkdocs reads has tags of its own.
    """
    found = _NAV.search(settings)
    assert found is not None, "docs/site/mkdocs.yml has no navigation"
    nav = _FOLDER.sub(lambda match: _lines(match, pages), found[1])
    return settings.replace(found[1], nav)


def _lines(match: re.Match[str], pages: dict[str, Any]) -> str:
    indent, title, folder = match[1], match[2], match[3]
    listed = [f"{folder}{name}" for name in in_folder(folder, pages)]
    if title is None:
        return "".join(f"{indent}- {page}\n" for page in listed)
    return f"{indent}- {title}:\n" + "".join(f"{indent}    - {page}\n" for page in listed)


def in_folder(folder: str, pages: dict[str, str]) -> list[str]:
    """List the pages of a folder: its index, and those that it links to."""
    linked = [name for name in _LINK.findall(pages[f"{folder}README.md"]) if f"{folder}{name}" in pages]
    return ["README.md", *dict.fromkeys(linked)]
