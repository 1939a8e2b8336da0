"""Find files of flows in a folder, name and load them, and tell what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from loom.cli.output import clean
from loom.flows.diagnostics import DefinitionError, Problem
from loom.flows.limits import Limits
from loom.flows.source_map import SourceMap, Spot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from loom.runtime.flow import Flow
    from loom.runtime.project import FileProblem, Project, ProjectError

SUFFIXES = (".json", ".yaml", ".yml")
_STANDARD = "workflow.json"
_SKIPPED = frozenset(
    {
        "node_modules",
        "__pycache__",
        "host.json",
        "local.settings.json",
        "connections.json",
        "parameters.json",
        "package.json",
        "package-lock.json",
        "workflow-designtime",
    }
)
"""What stands beside workflows and is none."""
_VALUES = ".parameters.json"
"""Values of the parameters of a resource template."""


def is_flow_place(place: str) -> bool:
    """Whether a target names files of flows rather than code."""
    return place.lower().endswith(SUFFIXES) or (Path(place).is_dir() and ":" not in Path(place).name)


def files_of(place: Path) -> list[Path]:
    """The file itself, or all files of flows in a folder and below, in order."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and _counts(path, place))


def _counts(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    is_beside = any(part.startswith(".") or part in _SKIPPED for part in parts)
    return path.is_file() and not is_beside and not path.name.lower().endswith(_VALUES)


def name_of(path: Path) -> str:
    """What a flow is called: after its file, or after its folder where all files are `workflow.json`."""
    folder = path.resolve().parent.name
    return folder if path.name.lower() == _STANDARD and folder else path.stem


def limits_of(max_iterations: int | None, max_duration: float | None) -> Limits:
    """What the operator lets loops ask for: never less than the defaults."""
    usual = Limits()
    return Limits(
        max_iterations=max(usual.max_iterations, max_iterations or 0),
        max_duration_s=max(usual.max_duration_s, max_duration or 0.0),
        max_until_iterations=max(usual.max_until_iterations, max_iterations or 0),
    )


def load_flow(path: Path, limits: Limits, parameters: Mapping[str, Any] | None = None) -> Flow:
    """The flow in a file, with what its project has for it, if it is in one, and with parameters of another file.

    Its problems are told, each with its place, if it cannot be loaded.
    """
    from loom.runtime.flow import file_text, load
    from loom.runtime.project_folder import project_of

    try:
        if parameters is None and project_of(path) is None and "appsetting" not in file_text(path).lower():
            return load(path, name=name_of(path), limits=limits)
    except DefinitionError as error:
        raise BrokenFlow(path, error.problems) from error
    from loom.runtime.project import ProjectError, load_beside

    try:
        return load_beside(path, name_of(path), limits, parameters)
    except ProjectError as error:
        if {each.file for each in error.errors} == {path}:
            raise BrokenFlow(path, error.problems) from error
        raise BrokenProject(error) from error
    except DefinitionError as error:
        raise BrokenFlow(path, error.problems) from error


def load_folder(folder: Path, limits: Limits, parameters: Mapping[str, Any] | None = None) -> Project:
    """The flows of a project. Its problems are told, each with its file and place, if it cannot be loaded."""
    from loom.runtime.project import ProjectError, load_project

    try:
        return load_project(folder, limits=limits, parameters=parameters)
    except ProjectError as error:
        raise BrokenProject(error) from error


def is_project_folder(folder: Path) -> bool:
    """Whether a folder is read as a project: it has `*/workflow.json`, and a file of projects or no other flows."""
    from loom.runtime.project_folder import is_project, workflow_files

    found = workflow_files(folder) if folder.is_dir() else []
    return bool(found) and (is_project(folder) or files_of(folder) == found)


def by_file(found: Iterable[FileProblem]) -> dict[Path, list[Problem]]:
    """Problems by their files."""
    files: dict[Path, list[Problem]] = {}
    for file, problem in found:
        files.setdefault(file, []).append(problem)
    return files


class BrokenProject(click.ClickException):
    """A project that cannot be loaded."""

    exit_code = 2

    def __init__(self, error: ProjectError) -> None:
        self._files = by_file(error.errors)
        count = len(error.errors)
        what = f"{count} problems" if count != 1 else "a problem"
        super().__init__(clean(f"{error.folder} cannot be loaded: it has {what}."))

    @override
    def show(self, file: Any = None) -> None:
        """Every problem on a line of its own, then the sum."""
        for path, problems in self._files.items():
            for line in problem_lines(path, problems):
                click.echo(line, err=True)
        super().show(file)


class BrokenFlow(click.ClickException):
    """A file that holds no flow that can be loaded."""

    exit_code = 2

    def __init__(self, path: Path, problems: Iterable[Problem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problems" if len(self.problems) != 1 else "a problem"
        super().__init__(clean(f"{path} cannot be loaded: it has {count}."))

    @override
    def show(self, file: Any = None) -> None:
        """Every problem on a line of its own, then the sum."""
        for line in problem_lines(self.path, self.problems):
            click.echo(line, err=True)
        super().show(file)


class BrokenFlows(click.ClickException):
    """A folder in which several files hold no flow that can be loaded."""

    exit_code = 2

    def __init__(self, folder: Path, broken: Sequence[BrokenFlow]) -> None:
        self._broken = broken
        super().__init__(clean(f"{folder} cannot be loaded: {len(broken)} of its files have problems."))

    @override
    def show(self, file: Any = None) -> None:
        """Every problem on a line of its own, then the sum."""
        for each in self._broken:
            for line in problem_lines(each.path, each.problems):
                click.echo(line, err=True)
        super().show(file)


def spots_of(path: Path, problems: Iterable[Problem]) -> list[tuple[Problem, Spot | None]]:
    """Problems with the places of what they are about, in the order of the file."""
    from loom.flows.document import without_comments
    from loom.runtime.flow import file_text

    try:
        text = file_text(path)
        places = SourceMap(without_comments(text) if path.suffix.lower() == ".json" else text)
    except DefinitionError:
        return [(problem, None) for problem in problems]
    found = [(problem, Spot(*problem.spot) if problem.spot else places.find(problem.path)) for problem in problems]
    return sorted(found, key=lambda pair: pair[1] or (0, 0))


def problem_lines(path: Path, problems: Iterable[Problem]) -> list[str]:
    """Problems for people, in the form that editors can follow: `file:line:column: error: path: message (hint)`."""
    lines = []
    for problem, spot in spots_of(path, problems):
        where = f"{path}:{spot.line}:{spot.column}" if spot is not None else str(path)
        lines.append(clean(f"{where}: {problem.severity}: {problem}"))
    return lines
