"""The pages of the site: a copy of `docs`, with links that hold there, and with what is generated from the code."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from loomsite.commands import commands
from loomsite.errors import exceptions, problems
from loomsite.events import events
from loomsite.metrics import metrics
from loomsite.names import names
from loomsite.navigation import with_folders
from loomsite.routes import routes
from loomsite.settings import settings

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
SITE = DOCS / "site"

GENERATED: dict[str, Callable[..., str]] = {
    "commands": commands,
    "events": events,
    "exceptions": exceptions,
    "metrics": metrics,
    "names": names,
    "problems": problems,
    "routes": routes,
    "settings": settings,
    "speed": lambda: _section(ROOT / "README.md", "Speed"),
}
"""What a page may ask for with `<!-- generated: NAME -->`; some take a word more."""

PROJECT = {
    "CHANGELOG.md": "project/changes.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "changelog.d/README.md": "project/changelog-fragments.md",
}
"""Pages from outside of `docs`, and where they are on the site."""

_MARK = re.compile(r"^<!-- generated: (\w+)(?: (\w+))? -->$", re.MULTILINE)
_LINK = re.compile(r"(?<!`)\]\((?!\w+:)([^)#\s]+)(#[^)\s]+)?\)")
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".json": "json", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh", ".toml": "toml"}


def write(build: Path) -> None:
    """Write all pages, and the settings of mkdocs for them, into a folder."""
    folder = build / "pages"
    if folder.exists():
        shutil.rmtree(folder)
    made = pages()
    folder.mkdir(parents=True)
    template = (SITE / "mkdocs.yml").read_text("utf-8")
    (build / "mkdocs.yml").write_text(with_folders(template, made), "utf-8")
    for place, text in made.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for place, source in assets().items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)


def pages() -> dict[str, str]:
    """Return the text of every page by its place on the site."""
    found = {source.relative_to(DOCS).as_posix(): source for source in _own_pages()}
    found |= {place: ROOT / name for name, place in PROJECT.items()}
    made = {place: _page(source, place) for place, source in found.items()}
    made["examples/README.md"] = _examples_index()
    made |= {_example_place(source): _example(source) for source in _examples()}
    return {place: _front_matter(place) + text for place, text in made.items()}


_WEIGHTS = (
    ("questions.md", None),
    ("start.md", 2),
    ("temporal-query-report.md", 0.1),
    ("adr/", 0.05),
    ("project/", 0.05),
    ("examples/", 0.1),
    ("reference/python-core.md", 0.1),
    ("reference/", 0.4),
)
"""How much a page counts in the search, by the beginning of its place; None: not at all. Headings count more than
text, and the titles of decisions are sentences: without a weight they would come first everywhere."""


def _front_matter(place: str) -> str:
    for start, weight in _WEIGHTS:
        if place.startswith(start):
            rule = "exclude: true" if weight is None else f"boost: {weight}"
            return f"---\nsearch:\n  {rule}\n---\n\n"
    return ""


def assets() -> dict[str, Path]:
    """Return the files that are shown as they are, by their place on the site."""
    kinds = (".png", ".svg", ".gif", ".json", ".css")
    found = [path for path in sorted(DOCS.rglob("*")) if path.suffix in kinds]
    return {path.relative_to(DOCS).as_posix().replace("site/", "assets/", 1): path for path in found}


def _section(source: Path, title: str) -> str:
    """Return the text of a section of a page, without its heading."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", source.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{source} has no section {title}"
    return found[1].strip()


def _own_pages() -> Iterator[Path]:
    yield from (path for path in sorted(DOCS.rglob("*.md")) if "site" not in path.relative_to(DOCS).parts)


def _page(source: Path, place: str) -> str:
    text = source.read_text("utf-8")
    parts = _FENCE.split(text)
    parts[::2] = (_LINK.sub(lambda match: f"]({_target(match, source, place)})", part) for part in parts[::2])
    return _MARK.sub(lambda match: GENERATED[match[1]](*filter(None, [match[2]])), "".join(parts))


def _target(match: re.Match[str], source: Path, place: str) -> str:
    """Make a link that holds on the site of one that holds in the repository."""
    wanted = (source.parent / match[1]).resolve()
    if not wanted.exists():
        return match[1] + (match[2] or "")  # the strict build tells of it
    return os.path.relpath(_place_of(wanted), PurePosixPath(place).parent) + (match[2] or "")


def _place_of(path: Path) -> str:
    """Return where a file or a folder of the repository is on the site."""
    name = path.relative_to(ROOT).as_posix()
    if name in PROJECT:
        return PROJECT[name]
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if name.startswith("examples"):
        return "examples/README.md" if path.is_dir() else _example_place(path)
    if name == "README.md":
        return "README.md"
    raise ValueError(f"A page links to {name}, which is not on the site: name it without a link.")


# -- examples ---------------------------------------------------------------------------------------------------------


def _examples() -> list[Path]:
    """List the examples that have a page of their own."""
    found = (path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in _LANGUAGES)
    return [path for path in found if "__pycache__" not in path.parts]


def _example_place(source: Path) -> str:
    return f"{_name(source)}.md"


def _examples_index() -> str:
    """List the examples, each with the first line of its description."""
    lines = [
        f"- [{_name(source)}]({_name(source).removeprefix('examples/')}.md){_about(source)}" for source in _examples()
    ]
    return "# Examples\n\nPrograms and flows of the repository. The test suite runs them.\n\n" + "\n".join(lines) + "\n"


def _name(source: Path) -> str:
    return source.relative_to(ROOT).as_posix()


def _about(source: Path) -> str:
    text = ast.get_docstring(ast.parse(source.read_text("utf-8"))) if source.suffix == ".py" else None
    return f": {text.partition(chr(10))[0]}" if text else ""


def _example(source: Path) -> str:
    """Show a file of `examples` as a page."""
    return f"# {_name(source)}\n\n`````{_LANGUAGES[source.suffix]}\n{source.read_text('utf-8').rstrip()}\n`````\n"
