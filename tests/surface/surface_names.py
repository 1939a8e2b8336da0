"""Writes down the public names of a module: what each is, its signature, and the members of classes.

A member counts where the first class that defines it is Loom's own: what pydantic, msgspec, asyncio and Python's own
classes bring along is left out. Annotations are shown as they are written. So a class may be split or merged freely as
long as its users see the same.
"""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, ForwardRef

from pydantic import BaseModel

import loom

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_HOME = re.compile(r"\b(?:loom|pathlib|collections|typing|builtins)(?:\.\w+)*\.(?=[A-Z_a-z]\w*)")
_SPECIAL = ("__aenter__", "__aexit__", "__aiter__", "__await__", "__call__", "__enter__", "__exit__", "__iter__")
_GENERATED = ("model_config", "model_fields", "model_computed_fields", "model_post_init")


def described(title: str, values: dict[str, Any]) -> str:
    """Write down values by their names, in the order of the names."""
    lines = [f"# {title}", ""]
    for name in sorted(values):
        lines += [*_value(name, values[name]), ""]
    return "\n".join(lines)


def described_members(title: str, cls: type, names: Iterable[str]) -> str:
    """Write down some members of a class that is not public itself."""
    return "\n".join([f"# {title}", "", *(_member(cls, name) for name in sorted(names)), ""])


def _value(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.ismodule(value):
        yield f"module {name}"
    elif inspect.isroutine(value):
        yield f"{_word(value)} {name}{_signature(value)}"
    else:
        yield f"value {name}: {type(value).__name__} = {_plain(repr(value))}"


def _class(name: str, value: type) -> Iterator[str]:
    yield f"class {name}{_constructor(value)}"
    bases = [base.__name__ for base in value.__mro__[1:] if _is_told(base)]
    if bases:
        yield f"    is also {', '.join(bases)}"
    if issubclass(value, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in value)
        return
    for field in _fields(value):
        yield f"    field {field}: {_annotation(_written(value, field))}"
    for member in sorted(_members(value)):
        yield f"    {_member(value, member)}"


def _is_told(base: type) -> bool:
    """Say whether users can rely on a base: it is one of Python's, or public itself."""
    if base.__module__ == "builtins":
        return base not in (object, BaseException)
    return _is_ours(base) and base.__name__ in loom.__all__


def _fields(value: type) -> list[str]:
    """List the fields of a struct or of a model."""
    found = getattr(value, "__struct_fields__", None) or getattr(value, "__pydantic_fields__", None) or ()
    return [name for name in found if not name.startswith("_")]


def _written(value: type, field: str) -> Any:
    """Find the annotation of a field as it is written."""
    for cls in value.__mro__:
        if field in (found := inspect.get_annotations(cls)):
            return found[field]
    return ""


def _members(value: type) -> set[str]:
    """Collect the public members whose first definition is in a class of Loom's."""
    found: set[str] = set()
    fields = set(_fields(value))
    for name in {name for cls in value.__mro__ for name in cls.__dict__}:
        home = next(cls for cls in value.__mro__ if name in cls.__dict__)
        is_shown = not name.startswith("_") or name in _SPECIAL
        if is_shown and _is_ours(home) and name not in fields and name not in _GENERATED:
            found.add(name)
    return found


def _is_ours(cls: type) -> bool:
    # Classes that stand in for those of llama-index-workflows bear the names of its modules.
    return cls.__module__.partition(".")[0] in ("loom", "workflows")


def _member(cls: type, name: str) -> str:
    raw = inspect.getattr_static(cls, name)
    if isinstance(raw, property):
        kind = "property" if raw.fset is None else "property (can be set)"
        return f"{kind} {name}: {_annotation(inspect.signature(raw.fget).return_annotation)}"  # type: ignore[arg-type]
    if isinstance(raw, classmethod | staticmethod):
        return f"{type(raw).__name__} {name}{_signature(raw.__func__)}"
    if inspect.ismethoddescriptor(raw) and not callable(raw):
        raw = getattr(cls, name)  # the author's own descriptor, around a function
    if inspect.isroutine(raw) and not isinstance(raw, types.MemberDescriptorType):
        return f"{_word(raw)} {name}{_signature(raw)}"
    annotation = _annotation(_written(cls, name))
    return f"attribute {name}{': ' if annotation else ''}{annotation}"


def _constructor(value: type) -> str:
    """Write the signature of a constructor; nothing where it is the one of a class that is not Loom's.

    Fields of structs and models are listed with their annotations: the constructor shows their names and defaults.
    """
    if getattr(value, "_is_protocol", False):
        return ""
    if issubclass(value, BaseModel):
        value.model_rebuild()  # its signature is empty until then, if the model was to be built at its first use
    if _fields(value):
        return _signature(value, annotated=False)
    home = next(cls for cls in value.__mro__ if "__init__" in cls.__dict__ or "__new__" in cls.__dict__)
    return _signature(value) if _is_ours(home) else ""


def _word(value: Any) -> str:
    if inspect.isasyncgenfunction(value):
        return "async generator"
    return "async def" if inspect.iscoroutinefunction(value) else "def"


def _signature(value: Any, *, annotated: bool = True) -> str:
    """Write a signature in the same way on every version of Python."""
    signature = inspect.signature(value)
    parts: list[str] = []
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and parameter.VAR_POSITIONAL not in kinds:
            parts.append("*")
        parts.append(_parameter(parameter, annotated))
        following = kinds[position + 1] if position + 1 < len(kinds) else None
        if parameter.kind is parameter.POSITIONAL_ONLY and following is not parameter.POSITIONAL_ONLY:
            parts.append("/")
    returned = _annotation(signature.return_annotation) if annotated else ""
    return f"({', '.join(parts)}){f' -> {returned}' if returned else ''}"


def _parameter(parameter: inspect.Parameter, annotated: bool) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = _annotation(parameter.annotation) if annotated else ""
    text = f"{stars}{parameter.name}{f': {annotation}' if annotation else ''}"
    return text if parameter.default is parameter.empty else f"{text} = {_plain(repr(parameter.default))}"


def _annotation(annotation: Any) -> str:
    """Write an annotation as its author did; nothing where there is none."""
    if annotation is inspect.Signature.empty or annotation == "":
        return ""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return _plain(annotation.__name__ if isinstance(annotation, type) else repr(annotation))


def _plain(text: str) -> str:
    """Write a value without its address in memory, and without the modules that classes happen to live in."""
    return _HOME.sub("", _ADDRESS.sub("", text))
