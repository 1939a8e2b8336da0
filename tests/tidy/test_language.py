"""How the source reads: words that a newcomer does not understand, doubled names, classes cut over files."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "loom"
MODULES = sorted(SRC.rglob("*.py"))

_RIDDLES = re.compile(
    r"\b(whoever|somebody|those of them|at hand|meanwhile|how-manieth|the same, but|stands for|so many|may import)\b",
    re.IGNORECASE,
)
"""Words that leave the actor or the thing open, and lists of imports, which import-linter checks."""

_SHOWN = frozenset({"src/loom/api/runs.py", "src/loom/api/state.py", "src/loom/steps/representation.py"})
"""Modules with docstrings that are texts of the API: they are descriptions in its schemas."""

# These lists may only shrink: an entry that is not needed any more must go.
DOUBLED_NAMES = frozenset(
    {
        "Answer",
        "Connection",
        "Definition",
        "Problem",
        "Program",
        "Reply",
        "Run",
        "StepState",
    }
)
"""Names that several classes have."""
LONE_SUBCLASSES = frozenset(
    {
        "ActiveRun(LiveRun)",
        "AnyEventCodec(StoredEventCodec)",
        "Ask(InputRequiredEvent)",
        "BurstMeter(Meter)",
        "Definitions(DefinitionNumbers)",
        "EndWatchers(Watchers)",
        "HttpServer(Server)",
        "MissingTypeError(UnknownTypeError)",
        "RemoteRunExists(RunExists)",
        "RemoteRunFinished(RunFinished)",
        "RemoteRunNotFound(RunNotFound)",
        "RemoteStore(InMemoryStateStore)",
        "ShuffledLoop(VirtualLoop)",
        "TemporalSettings(Settings)",
        "TracedDraft(Draft)",
        "WorkerStore(MemoryStore)",
        "WriterTurn(WriterLock)",
        "_Execution(StepExecution)",
    }
)
"""Classes whose base class has no other subclass and is in another file."""


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_command(node: ast.AST) -> bool:
    """Whether a function is a command, whose docstring is its help."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any("command" in ast.unparse(each) or "group" in ast.unparse(each) for each in decorators)


def _texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings, and the texts below attributes and constants."""
    for parent in ast.walk(tree):
        if _is_command(parent):
            continue
        for node in getattr(parent, "body", []) if not isinstance(parent, ast.Lambda | ast.IfExp) else []:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in MODULES:
        yield from ((path, node) for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef))


def _base_names(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(plain, ast.Name | ast.Attribute):
            yield plain.id if isinstance(plain, ast.Name) else plain.attr


def test_docstrings_speak_plainly() -> None:
    odd = [
        f"{_name(path)}:{text.lineno}: {found[0]}"
        for path in MODULES
        if _name(path) not in _SHOWN
        for text in _texts(_tree(path))
        if (found := _RIDDLES.search(str(text.value)))
    ]
    assert odd == []


def test_a_class_has_a_name_of_its_own() -> None:
    places = defaultdict(set)
    for path, node in _classes():
        places[node.name].add(path)
    assert {name for name, paths in places.items() if len(paths) > 1} == DOUBLED_NAMES


def test_no_class_is_cut_over_files() -> None:
    homes = defaultdict(set)
    subclasses = defaultdict(list)
    for path, node in _classes():
        homes[node.name].add(path)
        for base in _base_names(node):
            subclasses[base].append((path, node.name))
    lone = {
        f"{found[0][1]}({base})"
        for base, found in subclasses.items()
        if len(found) == 1 and len(homes[base]) == 1 and found[0][0] not in homes[base]
    }
    assert lone == LONE_SUBCLASSES
