"""Put the fragments of `changelog.d` into CHANGELOG.md, as the section of a release.

`make changelog` writes the section of the version that the source has, and deletes the fragments.
`make changelog ARGS=--draft` prints the section and changes nothing.

A fragment is the text of one entry in a file of its own, so that two changes never edit the same lines.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "changelog.d"
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
"""What a fragment can be, in the order of the sections."""

_NAME = re.compile(rf"[a-z0-9]+(?:-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_END = re.compile(r"""[.!?)][`"')*]*\Z""")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_UNRELEASED = "## [Unreleased]"
_LONGEST_LINE = 600


class ChangelogError(Exception):
    """A fragment or the changelog is not as it must be; the text says where and what to do."""


@dataclass(frozen=True)
class Fragment:
    """The text of one entry, and the section that it goes to."""

    path: Path
    kind: str
    text: str

    @property
    def bullet(self) -> str:
        """The entry as an item of a list."""
        return "- " + self.text.replace("\n", "\n  ")


def problems(path: Path, root: Path) -> list[str]:
    """Tell what is wrong with one file of the folder."""
    if not _NAME.fullmatch(path.name):
        return [f"{path.name}: name it SLUG.KIND.md, in lower case with hyphens; KIND is one of {', '.join(KINDS)}"]
    text = path.read_text("utf-8")
    found = []
    if not text.strip():
        found.append("has no text")
    elif text.startswith(("- ", "* ", "#", " ")):
        found.append("begins with a mark: write the text alone; the list is made when the changelog is")
    if "\n\n" in text.strip():
        found.append("has several paragraphs: write one entry per file")
    if text.strip() and not _END.search(text.rstrip()):
        found.append("does not end with a full stop")
    if any(len(line) > _LONGEST_LINE for line in text.splitlines()):
        found.append(f"has a line of more than {_LONGEST_LINE} characters")
    for link in _LINK.findall(text):
        if "://" not in link and not (root / link.partition("#")[0]).exists():
            found.append(f"links to {link}, which is not there; links begin at the root of the repository")
    return [f"{path.name}: {problem}" for problem in found]


def fragments(root: Path = ROOT) -> list[Fragment]:
    """Read all fragments, in the order of their sections and names.

    Raise:
        ChangelogError: files are not well formed; all of them are named.
    """
    paths = sorted(path for path in (root / FOLDER).iterdir() if path.name != "README.md")
    if wrong := [problem for path in paths for problem in problems(path, root)]:
        raise ChangelogError("\n".join(f"{FOLDER}/{problem}" for problem in wrong))
    found = [Fragment(path, path.name.split(".")[-2], path.read_text("utf-8").strip()) for path in paths]
    return sorted(found, key=lambda fragment: (KINDS.index(fragment.kind), fragment.path.name))


def _sections(body: str) -> tuple[str, dict[str, str]]:
    """The text before the first heading of a section, and the entries below each one."""
    opening, *rest = re.split(r"^### (\w+)$", body, flags=re.MULTILINE)
    entries = {heading.lower(): text.strip() for heading, text in zip(rest[::2], rest[1::2], strict=True)}
    if unknown := entries.keys() - set(KINDS):
        raise ChangelogError(f"CHANGELOG.md: unknown sections below {_UNRELEASED}: {', '.join(sorted(unknown))}")
    return opening.strip(), entries


def _split(changelog: str) -> tuple[str, str, str]:
    """What stands before the unreleased changes, their body, and the releases after them."""
    head, mark, rest = changelog.partition(f"{_UNRELEASED}\n")
    if not mark:
        raise ChangelogError(f"CHANGELOG.md has no line '{_UNRELEASED}'")
    body, mark, older = rest.partition("\n## [")
    return head, body, mark.lstrip("\n") + older


def release_body(changelog: str, found: list[Fragment]) -> str:
    """Write what a release is: the unreleased text of the changelog, with the fragments before older entries."""
    opening, entries = _sections(_split(changelog)[1])
    bullets = defaultdict(list)
    for fragment in found:
        bullets[fragment.kind].append(fragment.bullet)
    parts = [opening] if opening else []
    for kind in KINDS:
        if lines := [*bullets[kind], *([entries[kind]] if entries.get(kind) else [])]:
            parts.append(f"### {kind.capitalize()}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def released(changelog: str, found: list[Fragment], version: str, day: str) -> str:
    """Write the changelog with a section for a release, and nothing unreleased.

    Raise:
        ChangelogError: the version has a section, or nothing has changed.
    """
    head, _, older = _split(changelog)
    if f"## [{version}]" in changelog:
        raise ChangelogError(f"CHANGELOG.md has a section of {version}: set the next version in src/loom/__init__.py")
    body = release_body(changelog, found)
    if not body:
        raise ChangelogError(f"Nothing has changed: {FOLDER} and the section '{_UNRELEASED}' are empty")
    return f"{head}{_UNRELEASED}\n\n## [{version}] - {day}\n\n{body}\n" + (f"\n{older}" if older else "")


def source_version(root: Path = ROOT) -> str:
    """Read the version that the source has."""
    [version] = _VERSION.findall((root / "src" / "loom" / "__init__.py").read_text("utf-8"))
    return str(version)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print or write the section of a release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draft", action="store_true", help="print the section, and change nothing")
    parser.add_argument(
        "--date", default=str(datetime.datetime.now(datetime.UTC).date()), help="the day of the release"
    )
    options = parser.parse_args(arguments)
    path = root / "CHANGELOG.md"
    try:
        found, text = fragments(root), path.read_text("utf-8")
        if options.draft:
            sys.stdout.write(release_body(text, found) + "\n")
            return 0
        path.write_text(released(text, found, source_version(root), options.date), "utf-8")
    except ChangelogError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for fragment in found:
        fragment.path.unlink()
    sys.stdout.write(f"CHANGELOG.md has a section of {source_version(root)}, with {len(found)} new entries\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
