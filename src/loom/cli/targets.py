"""Load the workflow that a TARGET on the command line means: `module:name`, `file.py:name`, or files of flows.

The user names this code to be run; nothing of it comes from stored data.
"""

from __future__ import annotations

import atexit
import gc
import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    from loom.flows.limits import Limits
    from loom.runtime.project import Project

_FORMS = "use module:name, file.py:name or flow.json"


class TargetError(click.ClickException):
    """A TARGET that does not lead to a workflow; the message names the place."""

    exit_code = 2


def load_workflow(target: str) -> Workflow | type[Workflow]:
    """The workflow, a class or an instance, that a target names. Runs the module it is in."""
    place, _, name = target.rpartition(":")
    if target.endswith(".py"):
        raise TargetError(f"{target!r} lacks the name of a workflow in it: use {target}:name.")
    if not place or not name or "/" in name or "\\" in name:
        raise TargetError(f"{target!r} is not a target: {_FORMS}.")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    if not hasattr(module, name):
        raise TargetError(f"{place} has no {name!r}. {_offer(module)}")
    found = getattr(module, name)
    if not _is_workflow(found):
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        raise TargetError(f"{target} is not a workflow but {kind}{_hint(found)}. {_offer(module)}")
    workflow: Workflow | type[Workflow] = found
    return workflow


def is_flow_target(target: str) -> bool:
    """Whether a target names a file of a flow, or a folder of them, rather than code."""
    from loom.cli.flow_files import is_flow_place

    return is_flow_place(_place(target))


def flow_place(target: str) -> Path | None:
    """The file of a flow, or the folder of several, that a target names; None if it names code."""
    return Path(_place(target)) if is_flow_target(target) else None


def named_workflows(
    targets: Iterable[str],
    limits: Limits | None = None,
    parameters: Mapping[str, Any] | None = None,
    projects: list[Project] | None = None,
) -> dict[str, Workflow]:
    """The workflows of targets by the names of their runs. Loops of flows may ask for what the limits say.

    Flows get the parameters, as far as they name them. Folders that are projects are added to `projects`.
    """
    found: dict[str, Workflow] = {}
    places: dict[str, str] = {}
    for target in targets:
        for place, name, workflow in _all_of(target, limits, parameters, projects):
            if name in found:
                message = f"Two targets are named {name}, {places[name]} and {place}: give one another name"
                raise TargetError(f"{message} with NAME=TARGET.")
            found[name], places[name] = workflow, place
    return found


def _all_of(
    target: str, limits: Limits | None, parameters: Mapping[str, Any] | None, projects: list[Project] | None
) -> list[tuple[str, str, Workflow]]:
    if not is_flow_target(target) or not Path(_place(target)).is_dir():
        return [(target, *named_workflow(target, limits, parameters))]
    from loom.cli.flow_files import BrokenFlow, BrokenFlows, files_of, is_project_folder, load_folder
    from loom.flows.limits import Limits
    from loom.runtime.project_folder import nearby

    if target != _place(target):
        raise TargetError(f"{target!r} names a folder: its flows go by the names of their files.")
    if (only := workflow_file(target)) != target:
        return [(only, *named_workflow(only, limits, parameters))]
    folder = Path(target)
    if is_project_folder(folder):
        project = load_folder(folder, limits or Limits(), parameters)
        if projects is not None:
            projects.append(project)
        return [(str(project.files[name]), name, flow) for name, flow in project.items()]
    files = files_of(folder)
    if not files:
        hint = nearby(folder)
        raise TargetError(f"{target} has no flows: it has no .json or .yaml files.{f' ({hint})' if hint else ''}")
    found: list[tuple[str, str, Workflow]] = []
    broken: list[BrokenFlow] = []
    for file in files:
        try:
            found.append((str(file), *named_workflow(str(file), limits, parameters)))
        except BrokenFlow as error:
            broken.append(error)
    if broken:
        raise broken[0] if len(broken) == 1 else BrokenFlows(Path(target), broken)
    return found


def workflow_file(target: str) -> str:
    """The file of a target that names the folder of one workflow in a project; else the target."""
    from loom.runtime.project_folder import WORKFLOW, project_of

    file = Path(target) / WORKFLOW
    return str(file) if file.is_file() and project_of(file) is not None else target


def project_around(target: str) -> list[str]:
    """The project that a target is a workflow of, which its children are in; none if it is in no project."""
    from loom.runtime.project_folder import project_of

    file = Path(workflow_file(_place(target)))
    root = project_of(file) if file.is_file() else None
    return [str(root)] if root is not None else []


def _place(target: str) -> str:
    """What stands behind NAME=, if that is a name at all."""
    name, given, place = target.partition("=")
    return place if given and not any(sign in name for sign in "/\\") else target


def named_workflow(
    target: str, limits: Limits | None = None, parameters: Mapping[str, Any] | None = None
) -> tuple[str, Workflow]:
    """The workflow of a target, and the name of its runs: that in the target, or NAME of NAME=TARGET."""
    name, given, place = target.partition("=")
    if given and place == _place(target) and (not name or name.startswith("loom.")):
        why = "names that begin with 'loom.' are Loom's own" if name else "there is no name before the '='"
        raise TargetError(f"{target!r} is not a target: {why}.")
    if is_flow_target(target):
        return _named_flow(target, limits, parameters)
    if not given:
        name, place = target.rpartition(":")[2], target
    found = load_workflow(place)
    if isinstance(found, Workflow):
        return name, found
    try:
        return name, found()
    except Exception as error:
        raise TargetError(_failure(place, error)) from error


def _named_flow(
    target: str, limits: Limits | None, parameters: Mapping[str, Any] | None = None
) -> tuple[str, Workflow]:
    from loom.cli.flow_files import load_flow, name_of
    from loom.flows.limits import Limits

    path = Path(_place(target))
    if not path.is_file():
        raise TargetError(f"{path} is a folder: name a file in it." if path.is_dir() else f"File not found: {path}")
    flow = load_flow(path, limits or Limits(), parameters)
    name = target.partition("=")[0] if target != str(_place(target)) else name_of(path)
    return name, flow


def load_handlers(places: Iterable[str]) -> None:
    """Run modules that register activities, actors and connectors. Each is `module` or `file.py`."""
    for place in places:
        if place.endswith(".py"):
            _load_file(Path(place))
        else:
            _load_module(place)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"File not found: {path}")
    # The stem is also the name under which the types of a script are recorded when it is run itself.
    name, file = path.stem, path.resolve()
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(file):
            return loaded
        raise TargetError(f"{path} cannot be loaded: another module named {name!r} is loaded already. Rename the file.")
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be loaded as a module.")
    module = module_from_spec(spec)
    sys.modules[name] = module
    _make_ready(file.parent)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise TargetError(_failure(str(path), error)) from error
    return module


def _load_module(name: str) -> ModuleType:
    _make_ready(Path.cwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(f"Module not found: {name}") from error
        raise TargetError(_failure(name, error)) from error
    except Exception as error:
        raise TargetError(_failure(name, error)) from error


def _make_ready(directory: Path) -> None:
    """Let the target import its neighbors, as `python file.py` and `python -m module` do.

    Authors may count on finalizers of objects in cycles at the end of the process: those are not left out any more.
    """
    atexit.unregister(gc.freeze)
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _failure(place: str, error: Exception) -> str:
    """Why a module could not be run, and where: the innermost line of the user's code or of what it called."""
    if isinstance(error, SyntaxError):  # whose text has the place too, but not the folder
        why, where = error.msg, f"{error.filename}, line {error.lineno}"
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why, where = str(error), f"{frame.filename}, line {frame.lineno}"
    return f"{place} cannot be loaded: {type(error).__name__}: {why} ({where})"


def _is_workflow(value: Any) -> bool:
    return isinstance(value, Workflow) or (isinstance(value, type) and issubclass(value, Workflow))


def _offer(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if _is_workflow(value) and value is not Workflow]
    return f"Workflows in it: {', '.join(names)}." if names else "It has no workflows."


def _hint(value: Any) -> str:
    """A workflow of the package that Loom stands in for looks like one of Loom's, but is none."""
    cls = value if isinstance(value, type) else type(value)
    if any(base.__module__ == "workflows.workflow" for base in cls.__mro__):
        return ", which is built on llama-index-workflows (call loom.compat.install() before importing it)"
    return ""
