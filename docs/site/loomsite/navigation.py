"""The settings of mkdocs, with the folders of the navigation as their index pages list them, in their words."""

from __future__ import annotations

import json
import re

_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#\s]+\.md)\)")
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


def _lines(match: re.Match[str], pages: dict[str, str]) -> str:
    indent, title, folder = match[1], match[2], match[3]
    inner = indent if title is None else f"{indent}    "
    listed = [f"{inner}- {folder}README.md\n"]
    listed += [f"{inner}- {json.dumps(text)}: {folder}{page}\n" for page, text in in_folder(folder, pages).items()]
    return ("" if title is None else f"{indent}- {title}:\n") + "".join(listed)


def in_folder(folder: str, pages: dict[str, str]) -> dict[str, str]:
    """Return the pages of a folder that its index links to, each with the text of its first link."""
    found: dict[str, str] = {}
    for text, page in _LINK.findall(pages[f"{folder}README.md"]):
        if f"{folder}{page}" in pages:
            found.setdefault(page, text.replace("`", ""))
    return found
