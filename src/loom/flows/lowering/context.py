"""What all lowering has in common: problems, templates with their references, nodes and blocks in the making. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from loom.expressions import (
    Constant,
    ExpressionError,
    call_problem,
    compile_template,
    compile_value,
    templates_in,
)
from loom.expressions.template import is_opaque
from loom.flows.diagnostics import Problems
from loom.flows.document import Document
from loom.flows.limits import Limits
from loom.flows.lowering.sources import Located, Source
from loom.flows.plain import MAKES_ODD_VALUES, NESTS, cleaned, sized
from loom.flows.program import Block, Node, Value

if TYPE_CHECKING:
    from loom.expressions import Template
    from loom.flows.operation import Operation


class Reference(NamedTuple):
    """An expression calls a function, perhaps with the name of something."""

    owner: int
    """The action whose expression it is; -1: none's."""
    path: str
    function: str
    """In lower case."""
    name: str | None
    """The first argument, if that is a plain text."""
    problem: str | None
    """What is wrong with the call itself."""


class Lowered(NamedTuple):
    """What has become of one action."""

    operation: Operation
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where actions stand."""

    owner: int = -1
    """The action around them."""
    loom: bool = False
    """Whether that is one of Loom's."""
    loops: tuple[int, ...] = ()
    depth: int = 1
    in_foreach: bool = False
    retry: Located | None = None
    """The policy that the action around them has for the one in it."""
    retried: bool = False
    """Whether the action around them is a `retry`."""


class LowerBlock(Protocol):
    """Makes a block of actions. It comes from outside, for containers have blocks and blocks have containers."""

    def __call__(
        self, low: Lowering, actions: Located | None, place: Place, *, ordered: bool | None = None, only: str = ""
    ) -> int:
        """`ordered`: whether in the order of the document, whatever the dialect says. `only`: the name of the one
        action that the author wrote instead of a map of actions."""
        ...


@dataclass(slots=True)
class Lowering:
    """A program in the making."""

    document: Document
    limits: Limits
    lower_block: LowerBlock
    problems: Problems = field(default_factory=Problems)
    nodes: list[Node | None] = field(default_factory=list)
    """By index; None while its inner actions are being made, or if it cannot be made."""
    blocks: list[Block] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Where each action stands, by its name in lower case."""
    variables: dict[str, str] = field(default_factory=dict)
    """The variables that are initialised, by their names in lower case."""
    assigned: list[tuple[int, Located]] = field(default_factory=list)
    """Actions that change a variable, with the name of it."""
    references: list[Reference] = field(default_factory=list)
    owner: int = -1
    """The action whose fields are being read."""
    owner_path: str = ""
    stored: bool = False
    """The document was stored. What it was allowed then and is refused today is a warning, and is cut down."""

    def reading(self, owner: int, path: str) -> None:
        """From here on, what is read belongs to this action, which stands there."""
        self.owner, self.owner_path = owner, path

    def within(self, path: str) -> str:
        """A path as seen from the action that is being read, as its errors name it."""
        return path.removeprefix(self.owner_path).removeprefix(".")

    def value(self, part: Located | None, *, lenient: bool, default: Any = None) -> Value:
        """A part of the document in which every text is a template; what is not there is the default."""
        if part is None:
            return constant(default)
        templates = self._templates(part, lenient)
        if None in templates:
            return constant(None)
        value = compile_value(part.value, path=self.within(part.path), lenient=lenient)
        functions = {call.function.lower() for template in templates if template is not None for call in template.calls}
        if not isinstance(value, Constant) and (isinstance(part.value, dict | list) or functions & NESTS):
            value = sized(value)
        return value if functions.isdisjoint(MAKES_ODD_VALUES) else cleaned(value)

    def text(self, part: Located, *, lenient: bool, lenient_reads: bool = False) -> Template | None:
        """One template; None, and a problem, if it does not parse."""
        try:
            template = compile_template(part.value, lenient=lenient, lenient_reads=lenient_reads)
        except ExpressionError as error:
            self.problems.error(part.path, str(error))
            return None
        for call in template.calls:
            self.refer(part.path, call.function, call.argument, call.arguments)
        return template

    def refer(self, path: str, function: str, name: str | None, arguments: int) -> None:
        """Keep in mind that the action calls a function."""
        problem = call_problem(function, arguments)
        self.references.append(Reference(self.owner, path, function.lower(), name, problem))

    def _templates(self, part: Located, lenient: bool) -> list[Template | None]:
        """Every template in it, with what it refers to kept; None, and a problem, for one that does not parse."""
        texts = [Located(text, path) for path, text in templates_in(part.value, part.path)]
        return [self.text(text, lenient=lenient) for text in texts]


@dataclass(frozen=True, slots=True)
class Action:
    """One action in the making: its source, its number, its place."""

    low: Lowering
    source: Source
    index: int
    place: Place

    @property
    def loom(self) -> bool:
        """Whether it speaks Loom's dialect."""
        return self.source.loom

    def value(self, part: Located | None, default: Any = None) -> Value:
        """A part of it, compiled in its dialect."""
        return self.low.value(part, lenient=self.loom, default=default)

    def required(self, key: str, *, found: Located | None) -> Located | None:
        """The part as it is; a problem if it is missing."""
        if found is None:
            name = self.source.data.get("type")
            self.low.problems.error(self.source.path, f"{name} needs '{key}'")
        return found

    def block(
        self,
        actions: Located | None,
        *,
        ordered: bool | None = None,
        only: str = "",
        loop: bool = False,
        retry: Located | None = None,
    ) -> int:
        """The number of a block in it; `only` as for `LowerBlock`."""
        place = Place(
            owner=self.index,
            loom=self.loom,
            depth=self.place.depth + 1,
            loops=(*self.place.loops, self.index) if loop else self.place.loops,
            in_foreach=self.place.in_foreach or (loop and self.source.type == "foreach"),
            retry=retry,
            retried=self.source.type == "retry",
        )
        made = self.low.lower_block(self.low, actions, place, ordered=ordered, only=only)
        self.low.reading(self.index, self.source.path)
        return made


def constant(value: Any) -> Value:
    """The same value in every environment."""
    return Constant(value)


def is_expression(value: Any) -> bool:
    """Whether it is a text that may stand for anything: a template with an expression in it."""
    if not isinstance(value, str) or "@" not in value:
        return False
    try:
        return not compile_template(value, lenient=True).is_literal
    except ExpressionError:
        return True  # That it does not parse is said where it is compiled.


def is_foreign(value: Any) -> bool:
    """Whether it is an expression of a resource template, which is not evaluated here."""
    return isinstance(value, str) and is_opaque(value)
