"""The folder of a Logic Apps project: which files it has, and which of its folders are workflows."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOW = "workflow.json"
HOST, PARAMETERS, CONNECTIONS, LOCAL = "host.json", "parameters.json", "connections.json", "local.settings.json"
BESIDE = (HOST, PARAMETERS, CONNECTIONS, LOCAL)
"""Files that make a folder a project."""

SKIPPED = frozenset({"workflow-designtime", "artifacts", "lib", "node_modules", "__pycache__", "bin", "obj"})
"""Names, in lower case, of folders in a project that are none of a workflow."""


def is_project(folder: Path) -> bool:
    """Tell whether a folder is a project: by a file that only projects have."""
    return folder.is_dir() and any((folder / name).exists() for name in BESIDE)


def project_of(path: Path) -> Path | None:
    """Find the project that a `workflow.json` belongs to; None if it belongs to none."""
    root = path.absolute().parent.parent
    return path.parent.parent if path.name.lower() == WORKFLOW and is_project(root) else None


def workflow_files(root: Path) -> list[Path]:
    """List the files of workflows in a project, in the order of their names."""
    ignored = _ignored(root)
    found = []
    for folder in sorted(root.iterdir()):
        name = folder.name
        is_other = name.startswith(".") or name.lower() in SKIPPED or any(fnmatch(name, each) for each in ignored)
        if not is_other and folder.is_dir() and (folder / WORKFLOW).is_file():
            found.append(folder / WORKFLOW)
    return found


def _ignored(root: Path) -> list[str]:
    """List the names of folders that `.funcignore` leaves out of a deployment."""
    place = root / ".funcignore"
    lines = place.read_text(encoding="utf-8", errors="replace").splitlines() if place.is_file() else []
    names = (line.strip().strip("/") for line in lines)
    return [name for name in names if name and not name.startswith(("#", "!"))]


def nearby(root: Path) -> str:
    """Suggest the project that was meant: the folder around, or one inside."""
    if (root / WORKFLOW).is_file() and is_project(root.absolute().parent):
        return f"did you mean its project, '{root.parent}'?"
    inside = next((each for each in sorted(root.iterdir()) if is_project(each) and workflow_files(each)), None)
    return f"did you mean '{inside}'?" if inside is not None else ""
