"""The reference of errors: exceptions that programs catch, and the codes that servers and flows answer with."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module

from loom.server.problems import PROBLEMS
from loomsite.classes import SRC, modules
from loomsite.markdown import code, sentence, table
from loomsite.names import pages_of_names

_WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+")
_ROOMS = ("loom.flows.", "loom.effects.", "loom.runtime.")
_CODED = {"ActionFailed": 1, "BadRequestError": 1, "ActionOutcome": 2, "Record": 3}
"""Classes whose code is an argument, and which one."""


def exceptions() -> str:
    """Describe the exceptions that programs can import."""
    rows = []
    for name in pages_of_names()["errors"]:
        package, _, own = name.rpartition(".")
        cls = getattr(import_module(package), own)
        rows.append((code(name), code(cls.__mro__[1].__name__), sentence(inspect.getdoc(cls) or "")))
    return table(("class", "is a", "means"), rows)


def problems() -> str:
    """Describe the problems that a server answers with."""
    return table(
        ("code", "status", "title"), ((code(name), str(status), text) for name, (status, text) in PROBLEMS.items())
    )


# -- codes of actions -------------------------------------------------------------------------------------------------


def action_codes() -> set[str]:
    """Find the codes that Loom gives to actions of flows that fail, are skipped or run out of time."""
    trees = {name: _tree(name) for name in modules() if name.startswith(_ROOMS)}
    known = {key: value for tree in trees.values() for key, value in _constants(tree)}
    found = {text for tree in trees.values() for node in ast.walk(tree) for text in _codes(node, known)}
    return {text for text in found if _WORD.fullmatch(text)}


def _tree(name: str) -> ast.Module:
    path = SRC.joinpath(*name.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text("utf-8"))


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names of constants, those that are assigned together among them."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(map(ast.unparse, target.elts), node.value.elts, strict=True)
        else:
            yield ast.unparse(target), node.value


def _codes(node: ast.AST, known: dict[str, ast.expr]) -> Iterator[str]:
    """Find what is used as a code at one place of the source."""
    for each in _places(node):
        yield from _texts(each, known)


def _places(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions at one place that are codes."""
    match node:
        case ast.Call():
            called = ast.unparse(node.func).rpartition(".")[2]
            yield from (each.value for each in node.keywords if each.arg == "code")
            yield from node.args[_CODED.get(called, len(node.args)) :][:1]
            yield from node.args if called in ("fail", "_limit_reached") else ()
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            yield from (value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "code")
        case ast.Assign(targets=[ast.Name(id="code")]):
            yield node.value
        case ast.arguments():
            given = zip(reversed(node.args), reversed(node.defaults), strict=False)
            yield from (default for each, default in given if each.arg == "code")


def _texts(node: ast.expr, known: dict[str, ast.expr]) -> Iterator[str]:
    """The texts that an expression may be."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) if name in known:
            yield from _texts(known[name], {})
        case ast.IfExp(body=body, orelse=otherwise):
            yield from (text for each in (body, otherwise) for text in _texts(each, known))
        case ast.BoolOp(values=values):
            yield from (text for each in values for text in _texts(each, known))
        case ast.Call(func=ast.Name(id="str"), args=[value]):
            yield from _texts(value, known)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))) if name in known:
            whole = known[name]
            if isinstance(whole, ast.Tuple):
                yield from _texts(whole.elts[index], known)
