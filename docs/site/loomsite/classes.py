"""What classes say of themselves in their source: fields with annotation, default and the text below.

It is read, not imported, so that a page can show a class whose packages the site does not have.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from loomsite.markdown import code, sentence, table

SRC = Path(__file__).resolve().parents[3] / "src"


class Field(NamedTuple):
    """A field of a class, as its source has it."""

    name: str
    annotation: str
    default: str | None
    """None: it must be given."""
    about: str


def fields(home: str, name: str) -> list[Field]:
    """List the public fields of a class, those of its base classes left out."""
    body = _class(home, name).body
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            default, described = _default(node.value)
            about = _text(after) or described
            found.append(Field(node.target.id, _annotation(node.annotation), default, about))
    return found


def about(home: str, name: str) -> str:
    """Return the docstring of a class, a line for each paragraph."""
    return sentence(ast.get_docstring(_class(home, name)) or "")


def field_table(found: list[Field], word: str = "field") -> str:
    """Make a table of fields."""
    rows = ((code(each.name), code(each.annotation), _shown(each), each.about) for each in found)
    return table((word, "type", "default", "meaning"), rows)


def _shown(field: Field) -> str:
    return "required" if field.default is None else code(field.default)


def _class(home: str, name: str) -> ast.ClassDef:
    return next(node for node in classes(home) if node.name == name)


@cache
def classes(home: str) -> tuple[ast.ClassDef, ...]:
    """Find the classes in the source of a module."""
    path = SRC.joinpath(*home.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(source.read_text("utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _annotation(node: ast.expr) -> str:
    """Show a type without what tools alone want of it."""
    return ast.unparse(node).replace(" | msgspec.UnsetType", "")


def _default(node: ast.expr | None) -> tuple[str | None, str]:
    """Return a default as it is written, and the text of a pydantic field."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Field":
        return (None if node is None else _plain(ast.unparse(node))), ""
    given = {each.arg: each.value for each in node.keywords}
    text = given.get("description")
    described = text.value if isinstance(text, ast.Constant) else ""
    if "default_factory" in given:
        return f"{ast.unparse(given['default_factory'])}()", described
    return (ast.unparse(given["default"]) if "default" in given else None), described


def _plain(default: str) -> str:
    """A default that says that nothing was given has no value that a reader could write."""
    return "" if default == "msgspec.UNSET" else default


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return sentence(node.value.value).replace("\n\n", " ")
    return ""


def modules() -> Iterator[str]:
    """Name every module of Loom."""
    for path in sorted((SRC / "loom").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
