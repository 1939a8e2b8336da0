"""Projects: a folder of Logic Apps Standard, loaded as its flows with the values that stand beside them.

A project has a `workflow.json` in each of its folders, and beside these `parameters.json`, `connections.json`,
`local.settings.json` and `host.json`. All of them are read, never written. Every problem is told with its file and its
JSON path, and one error refuses the whole project: half of one might do harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from typing_extensions import override

from loom.expressions import ExpressionError
from loom.expressions.values import kind_of
from loom.flows.beside import PARAMETER, SETTING, Beside, calls_of, forbidden_calls, names_of
from loom.flows.compiler import compile_flow
from loom.flows.diagnostics import DefinitionError, Problem, at, suggestion
from loom.flows.document import parse_text, read_document, without_comments
from loom.flows.triggers import PARAMETER_TYPES, fits, parameter_problems
from loom.runtime.flow import Flow, connection_problems, file_text, limits_of
from loom.runtime.host_settings import HostSettings, host_settings
from loom.runtime.project_folder import (
    CONNECTIONS,
    HOST,
    LOCAL,
    PARAMETERS,
    WORKFLOW,
    nearby,
    project_of,
    workflow_files,
)
from loom.runtime.project_values import AppSettings, ProjectParameter, ProjectValues, has_expressions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from loom.flows.limits import Limits
    from loom.flows.program import Program

CONNECTION_KINDS = {
    "managedApiConnections": "ApiConnection",
    "serviceProviderConnections": "ServiceProvider",
    "functionConnections": "Function",
    "apiManagementConnections": "ApiManagement",
    "agentConnections": "Agent",
}
"""The sections of `connections.json`, each with the type of the actions that use it."""

_TYPES = frozenset(name.lower() for name in PARAMETER_TYPES)


class FileProblem(NamedTuple):
    """A problem and the file that it is in."""

    file: Path
    problem: Problem


class ProjectError(DefinitionError):
    """Raised for a project that cannot be loaded. Its text lists all problems, with their files and JSON paths."""

    def __init__(self, folder: Path, found: Iterable[FileProblem]) -> None:
        self.folder = folder
        self.found = tuple(found)
        """All problems, warnings too, each with its file."""
        super().__init__(each.problem for each in self.errors)

    @property
    def errors(self) -> list[FileProblem]:
        """What refuses the project."""
        return [each for each in self.found if each.problem.severity == "error"]

    @override
    def __str__(self) -> str:
        return "\n".join(f"{each.file}: {each.problem}" for each in self.errors)


class Project(Mapping[str, Flow]):
    """A folder of Logic Apps Standard: its flows by name, which is the name of their folder."""

    def __init__(self, folder: Path, flows: dict[str, Flow], reader: ProjectReader) -> None:
        self.folder = folder
        self.values_of_runs = reader.values
        """What runs of its flows get when they start."""
        self.retention_s = reader.host.retention_s
        """Seconds that `host.json` keeps ended runs; None: it does not say."""
        self.connections = reader.connections
        """The section of `connections.json` that a connection stands in, by the name of the connection."""
        self.warnings = [each for each in reader.problems if each.problem.severity != "error"]
        """What is to be said of its files, short of refusing them."""
        self.parameter_places = reader.parameter_places
        """The file and the JSON path of the value of each parameter, by name in lower case."""
        self.files = reader.files
        """The file of each flow by name."""
        self._flows = flows

    @override
    def __getitem__(self, name: str) -> Flow:
        return self._flows[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._flows)

    @override
    def __len__(self) -> int:
        return len(self._flows)

    @override
    def __repr__(self) -> str:
        return f"<Project {str(self.folder)!r}, {len(self._flows)} flows>"

    def file(self, name: str) -> Path:
        """Return the place of one of the files beside its flows."""
        return self.folder / name


def load_project(
    folder: str | PathLike[str],
    *,
    limits: Limits | Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Project:
    """Load the flows of a project's folder, with the parameters, settings and connections beside them.

    `parameters` take the place of those in `parameters.json`. Raises `ProjectError`, which is a `DefinitionError`, with
    every problem.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ProjectError(root, [FileProblem(root, Problem("", "there is no such folder"))])
    reader = ProjectReader(root, parameters)
    places = workflow_files(root)
    if not places:
        hint = nearby(root)
        problem = Problem("", f"there is no folder with a {WORKFLOW} in it", hint)
        raise ProjectError(root, [FileProblem(root, problem)])
    reader.read_beside()
    allowed = reader.host.limits(limits_of(limits))
    flows = {name: flow for path in places if (flow := reader.flow(path, name := path.parent.name, allowed))}
    if reader.has_errors:
        raise ProjectError(root, reader.problems)
    return Project(root, flows, reader)


def load_beside(path: Path, name: str, limits: Limits, parameters: Mapping[str, Any] | None) -> Flow:
    """Load a single file with parameters that stand in another one. Its settings come from the environment.

    A `workflow.json` in a project is loaded with what the project has. Raises `DefinitionError`.
    """
    reader = ProjectReader(path.parent, parameters)
    if (root := project_of(path)) is not None:
        reader = ProjectReader(root, parameters)
        reader.read_beside()
        limits = reader.host.limits(limits)
    else:
        reader.take_parameters()
    flow = reader.flow(path, name, limits, always=root is not None)
    if reader.has_errors or flow is None:
        raise ProjectError(path if root is None else root, reader.problems)
    return flow


class ProjectReader:
    """Reads the files of one project, and collects what is wrong with them."""

    def __init__(self, root: Path, parameters: Mapping[str, Any] | None) -> None:
        self.root = root
        self.problems: list[FileProblem] = []
        self.host = HostSettings()
        self.connections: dict[str, str] = {}
        self.values = ProjectValues(AppSettings())
        self.files: dict[str, Path] = {}
        self.parameter_places: dict[str, tuple[Path, str]] = {}
        """The file of each parameter and the JSON path of its value, by its name in lower case."""
        self._parameters = parameters or {}
        self._is_project = False

    def note(self, file: Path, problem: Problem) -> None:
        """Add a problem of a file, unless it was found before."""
        if FileProblem(file, problem) not in self.problems:
            self.problems.append(FileProblem(file, problem))

    @property
    def has_errors(self) -> bool:
        """Whether a problem refuses the project."""
        return any(each.problem.severity == "error" for each in self.problems)

    def take_parameters(self) -> None:
        """Take the parameters that the caller gives: they win."""
        self._add_parameters(Path("--parameters"), self._parameters)
        self._check_parameters()

    def read_beside(self) -> None:
        """Read what stands beside the workflows."""
        self._is_project = True
        local, connections = self._object(LOCAL), self._object(CONNECTIONS)
        self.values.settings = AppSettings(self._setting_values(local))
        self.host, problems = host_settings(self._object(HOST))
        for problem in problems:
            self.note(self.root / HOST, problem)
        self._add_connections(connections)
        self.values.settings.know(names_of(calls_of(SETTING, connections)))
        self._add_parameters(self.root / PARAMETERS, self._object(PARAMETERS))
        self.take_parameters()

    def flow(self, path: Path, name: str, limits: Limits, *, always: bool = True) -> Flow | None:
        """Load one workflow; None, and its problems, if it cannot be. `always`: it belongs to a project."""
        self.files[name] = path
        if self._leaves(path):
            return None
        try:
            document = read_document(self._data(path), name=name)
        except DefinitionError as error:
            self.problems += [FileProblem(path, problem) for problem in error.problems]
            return None
        beside = self._beside(document.definition)
        if always or beside != Beside():
            document = replace(document, beside=beside)
        self.values.settings.know(beside.settings)
        program, problems = compile_flow(document, limits=limits)
        if program is not None:
            problems = [*problems, *connection_problems(program)]
        self.problems += [FileProblem(path, problem) for problem in problems]
        if program is None:
            return None
        for key in beside.parameters:
            self._check_type(name, self.values.parameters[key.lower()], program)
        warnings = [problem for problem in problems if problem.severity != "error"]
        return Flow(program, document, limits, warnings, surroundings=self.values)

    def _beside(self, definition: dict[str, Any]) -> Beside:
        """Choose what a definition takes from the project: a value that it does not name makes no new version of it."""
        calls = calls_of(PARAMETER, definition)
        declared = definition.get("parameters")
        names = {name.lower() for name in (*names_of(calls), *(declared if isinstance(declared, dict) else ()))}
        is_any = any(call.name is None for call in calls)
        wanted = [each for key, each in self.values.parameters.items() if is_any or key in names]
        settings = names_of(calls_of(SETTING, definition))
        return Beside({each.name: each.shown_type for each in wanted}, settings)

    # -- the files beside the workflows -------------------------------------------------------------------------------

    def _object(self, name: str) -> dict[str, Any]:
        """Read a file beside the workflows; it is empty if it is not there or not to be read."""
        path = self.root / name
        if not path.exists() and not path.is_symlink():
            return {}
        if self._leaves(path):
            return {}
        try:
            data = self._data(path)
        except DefinitionError as error:
            self.problems += [FileProblem(path, problem) for problem in error.problems]
            return {}
        if not isinstance(data, dict):
            self.note(path, Problem("", f"the file must be an object, and it is {kind_of(data)}", spot=(1, 1)))
            return {}
        return data

    def _data(self, path: Path) -> Any:
        """Read a file. Those of a project may have comments and trailing commas: Azure's tools take them."""
        text = file_text(path)
        try:
            return parse_text(text)
        except DefinitionError:
            if not self._is_project:
                raise
            return parse_text(without_comments(text))

    def _leaves(self, path: Path) -> bool:
        """Tell whether a file is a link to somewhere outside of the project, and note it."""
        root = self.root.resolve()
        if not self._is_project or path.resolve().is_relative_to(root):
            return False
        self.note(path, Problem("", "it is a link that leaves the project, which is not followed"))
        return True

    def _setting_values(self, data: dict[str, Any]) -> dict[str, str]:
        path, values = self.root / LOCAL, data.get("Values", {})
        if data.get("IsEncrypted") is True:
            hint = "run `func settings decrypt`, or set them in the environment"
            self.note(path, Problem("IsEncrypted", "its values are encrypted, and are not read", hint, "warning"))
            return {}
        if not isinstance(values, dict):
            self.note(path, Problem("Values", f"'Values' must be an object of texts, and it is {kind_of(values)}"))
            return {}
        found: dict[str, str] = {}
        for name, value in values.items():
            if isinstance(value, dict | list) or value is None:
                self.note(path, Problem(at("Values", name), f"a setting must be a text, and it is {kind_of(value)}"))
                continue
            found[name] = value if isinstance(value, str) else json.dumps(value)
            if found[name].startswith("@Microsoft.KeyVault("):
                hint = f"set {name} in the environment"
                message = "a reference to a key vault is not followed: the setting is this text"
                self.note(path, Problem(at("Values", name), message, hint, "warning"))
        return found

    def _add_parameters(self, file: Path, data: Mapping[str, Any]) -> None:
        inner = data.get("parameters")
        prefix = ""
        if isinstance(inner, dict) and "value" not in inner and ("$schema" in data or len(data) == 1):
            data, prefix = inner, "parameters"  # as files of resource templates have it
        for name, entry in data.items():
            path = at(prefix, name)
            is_entry = isinstance(entry, dict) and "value" in entry
            if not is_entry and file.name == PARAMETERS:
                self.note(file, Problem(path, "a parameter is an object with a 'value'"))
                continue
            value, kind = (entry["value"], entry.get("type", "")) if is_entry else (entry, "")
            if not isinstance(kind, str) or (kind and kind.lower() not in _TYPES):
                hint = suggestion(str(kind), PARAMETER_TYPES)
                self.note(file, Problem(at(path, "type"), f"{kind!r} is no type of a parameter", hint))
                continue
            key = name.lower()
            self.parameter_places[key] = (file, at(path, "value") if is_entry else path)
            before = self.values.parameters.get(key)
            self.values.parameters[key] = ProjectParameter(name, kind or (before.type if before else ""), value)

    def _check_parameters(self) -> None:
        settings = self.values.settings
        for key, each in self.values.parameters.items():
            settings.know(each.settings)
            file, path = self.parameter_places[key]
            for call in forbidden_calls(each.value):
                message = f"{call.name}() asks for a run, and there is none here: an expression may read app settings"
                self.note(file, Problem(path, message))
            if (value := self._value_of(each)) is not _UNKNOWN and not fits(each.type.lower(), value):
                self.note(file, Problem(path, f"the value is {kind_of(value)}, and the type is {each.type}"))

    def _value_of(self, parameter: ProjectParameter) -> Any:
        """Return the value as it is now; `_UNKNOWN` if a setting is missing or an error was noted."""
        if len(self.values.settings.read(parameter.settings)) < len(parameter.settings):
            return _UNKNOWN
        if not has_expressions(parameter.value):
            return parameter.value
        if forbidden_calls(parameter.value):
            return _UNKNOWN
        try:
            return parameter.current(self.values.settings)
        except ExpressionError as error:
            file, path = self.parameter_places[parameter.name.lower()]
            # What it says may repeat a secret, unless no setting is in it.
            why = "it cannot be evaluated with the settings as they are" if parameter.settings else str(error)
            self.note(file, Problem(path, why))
            return _UNKNOWN

    def _check_type(self, flow: str, parameter: ProjectParameter, program: Program) -> None:
        """Check a value against what one workflow declares of the parameter."""
        value = self._value_of(parameter) if not parameter.settings else _UNKNOWN
        problems = parameter_problems(program, {parameter.name: value}) if value is not _UNKNOWN else []
        file, path = self.parameter_places[parameter.name.lower()]
        for message in problems:
            self.note(file, Problem(path, f"{message[:-1]} in the workflow '{flow}'"))

    def _add_connections(self, data: dict[str, Any]) -> None:
        path = self.root / CONNECTIONS
        for section, entries in data.items():
            if section not in CONNECTION_KINDS:
                hint = suggestion(section, CONNECTION_KINDS) or f"known are {', '.join(CONNECTION_KINDS)}"
                self.note(path, Problem(section, "this is no section of connections", hint, "warning"))
                continue
            if not isinstance(entries, dict):
                self.note(path, Problem(section, f"'{section}' is an object of connections by name"))
                continue
            for name, entry in entries.items():
                if not isinstance(entry, dict):
                    self.note(path, Problem(at(section, name), "a connection is an object"))
                    continue
                self.connections[name] = section
                self.values.connections[name] = entry


_UNKNOWN: Any = object()
"""A value that is not known before a run."""
