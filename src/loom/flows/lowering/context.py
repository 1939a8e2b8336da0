"""The context of all lowering: actions as the document has them, and the program in the making.

`ActionSource` finds the fields of an action in either dialect. `Lowering` compiles templates, keeps what they refer to,
and collects problems, nodes and blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct, field

from loom.expressions import Constant, ExpressionError, call_problem, compile_template, compile_value, templates_in
from loom.expressions.parser import is_opaque
from loom.flows.action_types import container_is_loom
from loom.flows.diagnostics import ProblemList, at
from loom.flows.document import Document
from loom.flows.limits import Limits
from loom.flows.plain import MAKES_ODD_VALUES, NESTS, cleaned, sized
from loom.flows.program import Block, Node, Value

if TYPE_CHECKING:
    from loom.expressions import Template
    from loom.flows.program import Operation


EVERYWHERE = frozenset(
    {
        "type",
        "kind",
        "name",
        "inputs",
        "runAfter",
        "conditions",
        "retry",
        "retryPolicy",
        "limit",
        "description",
        "metadata",
        "operationOptions",
        "runtimeConfiguration",
        "trackedProperties",
    }
)
"""Keys that an action of any type may have."""


class Located(NamedTuple):
    """A part of the document and its JSON path."""

    value: Any
    path: str

    def child(self, key: str) -> Located | None:
        """Return the part under a key; None if this is no object, or lacks it."""
        if isinstance(self.value, dict) and key in self.value:
            return Located(self.value[key], at(self.path, key))
        return None


class ActionSource:
    """One action of the document."""

    __slots__ = ("_inputs", "around", "data", "loom", "name", "path", "type")

    def __init__(self, name: str, data: dict[str, Any], path: str, around: bool) -> None:
        self.name = name
        self.data = data
        self.path = path
        self.around = around
        """True if it stands in a container of Loom's."""
        kind = data.get("type")
        self.type = kind.lower() if isinstance(kind, str) else ""
        """Its type in lower case; empty if it has none."""
        self.loom = container_is_loom(self.type, data, around=around)
        """True if it speaks Loom's dialect: like its container, or by its own type and fields."""
        self._inputs = Located(data.get("inputs"), at(path, "inputs"))

    def top(self, key: str) -> Located | None:
        """Return a field of the action itself."""
        return Located(self.data[key], at(self.path, key)) if key in self.data else None

    def field(self, *keys: str) -> Located | None:
        """Return the first field of these names: of the action itself, or under `inputs`."""
        for key in keys:
            found = self.top(key) or self._inputs.child(key)
            if found is not None:
                return found
        return None

    def input(self, key: str) -> Located | None:
        """Return a field under `inputs`; in Loom's dialect also of the action itself."""
        found = self._inputs.child(key)
        return found or (self.top(key) if self.loom and key != "type" else None)

    def inputs(self) -> Located:
        """Return all inputs. In Loom's dialect they may stand in the action, beside the keys that every action has."""
        if "inputs" in self.data or not self.loom:
            return self._inputs
        own = {key: value for key, value in self.data.items() if key not in EVERYWHERE}
        return Located(own or None, self.path)

    @property
    def options(self) -> tuple[str, ...]:
        """`operationOptions`, in lower case."""
        text = self.data.get("operationOptions")
        if not isinstance(text, str):
            return ()
        return tuple(option.strip().lower() for option in text.split(",") if option.strip())

    def setting(self, *keys: str) -> Located | None:
        """Return the part under `runtimeConfiguration`, following these keys."""
        found = self.top("runtimeConfiguration")
        for key in keys:
            found = found.child(key) if found is not None else None
        return found


ACTION_FUNCTIONS = frozenset(
    {
        "actions",
        "outputs",
        "body",
        "actionoutputs",
        "actionbody",
        "result",
        "items",
        "iterationindexes",
        "formdatavalue",
        "formdatamultivalues",
        "multipartbody",
    }
)
"""Functions whose first argument names an action."""


class Reference(NamedTuple):
    """A function call in an expression."""

    owner: int
    """Index of the action that has the expression; -1: it belongs to no action."""
    path: str
    function: str
    """The function, in lower case."""
    name: str | None
    """The first argument, if it is a plain text; else None."""
    problem: str | None
    """Problem of the call itself; None if it is sound."""


class Lowered(NamedTuple):
    """A lowered action: its operation, and the blocks that it owns."""

    operation: Operation
    blocks: tuple[int, ...] = ()


class BlockContext(Struct, frozen=True):
    """The surroundings of a block's actions."""

    owner: int = -1
    """Index of the action around them; -1: the top level."""
    loom: bool = False
    """True if the action around them speaks Loom's dialect."""
    loops: tuple[int, ...] = ()
    depth: int = 1
    in_foreach: bool = False
    retry: Located | None = None
    """Retry policy that the action around them has for its inner action."""
    retried: bool = False
    """True if the action around them is a `retry`."""


class LowerBlock(Protocol):
    """Makes a block of actions. Lowering gets it as a value: containers make blocks, and blocks make containers."""

    def __call__(
        self,
        low: Lowering,
        actions: Located | None,
        place: BlockContext,
        *,
        ordered: bool | None = None,
        only: str = "",
    ) -> int:
        """`ordered`: whether in the order of the document, whatever the dialect says. `only`: the name of the one
        action that the author wrote instead of a map of actions."""
        ...


class Lowering(Struct):
    """A program in the making."""

    document: Document
    limits: Limits
    lower_block: LowerBlock
    problems: ProblemList = field(default_factory=ProblemList)
    nodes: list[Node | None] = []
    """By index; None while its inner actions are being made, or if it cannot be made."""
    blocks: list[Block] = []
    names: dict[str, str] = {}
    """JSON paths of actions, by name in lower case."""
    variables: dict[str, str] = {}
    """Variables that are initialised, by name in lower case."""
    assigned: list[tuple[int, Located]] = []
    """Actions that change a variable, each with the variable's name."""
    references: list[Reference] = []
    owner: int = -1
    """The action whose fields are being read."""
    owner_path: str = ""
    stored: bool = False
    """True for a stored document. What today's limits refuse is warned of and cut down, not refused."""

    conditions: list[tuple[int, str]] = []
    """Loops with a test, each with the JSON path of the test."""

    def refuse(self, path: str, message: str, hint: str = "") -> None:
        """Add a problem that keeps a new document from being loaded. A stored one loads with a warning."""
        (self.problems.warn if self.stored else self.problems.error)(path, message, hint)

    def reading(self, owner: int, path: str) -> None:
        """Begin to read an action: what follows belongs to it."""
        self.owner, self.owner_path = owner, path

    def within(self, path: str) -> str:
        """Make a path relative to the action that is being read, as its errors name it."""
        return path.removeprefix(self.owner_path).removeprefix(".")

    def value(self, part: Located | None, *, lenient: bool, default: Any = None) -> Value:
        """Compile a part of the document in which every text is a template. A missing part is the default."""
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
        """Compile one template; None, and a problem, if it does not parse."""
        try:
            template = compile_template(part.value, lenient=lenient, lenient_reads=lenient_reads)
        except ExpressionError as error:
            self.problems.error(part.path, str(error))
            return None
        for call in template.calls:
            self.refer(part.path, call.function, call.argument, call.arguments)
        return template

    def refer(self, path: str, function: str, name: str | None, arguments: int) -> None:
        """Note that the action calls a function."""
        problem = call_problem(function, arguments)
        self.references.append(Reference(self.owner, path, function.lower(), name, problem))

    def _templates(self, part: Located, lenient: bool) -> list[Template | None]:
        """Compile every template of a part and note its references; None for one that does not parse."""
        texts = [Located(text, path) for path, text in templates_in(part.value, part.path)]
        return [self.text(text, lenient=lenient) for text in texts]


class ActionDraft(Struct, frozen=True):
    """One action in the making: its source, its number, its place."""

    low: Lowering
    source: ActionSource
    index: int
    place: BlockContext

    @property
    def loom(self) -> bool:
        """True if it speaks Loom's dialect."""
        return self.source.loom

    def value(self, part: Located | None, default: Any = None) -> Value:
        """Compile a part of it in its dialect."""
        return self.low.value(part, lenient=self.loom, default=default)

    def required(self, key: str, *, found: Located | None) -> Located | None:
        """Return the part as it is; report a problem if it is missing."""
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
        """Make a block inside it, and return the block's number. `only` is as for `LowerBlock`."""
        place = BlockContext(
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
    """Make a value that is equal in every environment."""
    return Constant(value)


def is_expression(value: Any) -> bool:
    """Tell whether it is a template with an expression in it, whose value is known only in a run."""
    if not isinstance(value, str) or "@" not in value:
        return False
    try:
        return not compile_template(value, lenient=True).is_literal
    except ExpressionError:
        return True  # That it does not parse is said where it is compiled.


def is_foreign(value: Any) -> bool:
    """Tell whether it is an expression of a resource template, which is not evaluated here."""
    return isinstance(value, str) and is_opaque(value)
