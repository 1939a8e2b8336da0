"""The values of XPath: nodes, numbers, texts and booleans, how they become each other, and the functions. Pure."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from loom.expressions.functions.registry import check_size
from loom.expressions.functions.xpath_nodes import ELEMENT_NODE, ROOT, TEXT_NODE, XML_NAMESPACE, XNode
from loom.expressions.meter import ELEMENT, NODE, spend, spend_text
from loom.expressions.strings import spend_search, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.functions.xpath import PathContext

_WHITE = " \t\r\n"
_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_LONGEST_NUMBER = 1_000


def string_of(value: Any) -> str:
    """A value as a text; of nodes, the first one's."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return text_of_node(value[0]) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number_text(value)


def text_of_node(node: XNode) -> str:
    """The text of a node: of an element, all texts in it."""
    if node.kind not in (ROOT, ELEMENT_NODE):
        spend_text(node.text)
        return node.text
    parts: list[str] = []
    pending, seen = [node], 0
    while pending:
        seen += 1
        one = pending.pop()
        if one.kind == TEXT_NODE:
            parts.append(one.text)
        elif one.children:
            pending.extend(reversed(one.children))
    spend(seen * 2 * ELEMENT)
    text = "".join(parts)
    spend_text(text)
    return text


def number_of(value: Any) -> float:
    """A value as a number; what is none is NaN."""
    if isinstance(value, float):
        return value
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    text = string_of(value).strip(_WHITE)
    return float(text) if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) else math.nan


def boolean_of(value: Any) -> bool:
    """Say whether there is something: a node, a character, a number that is not 0."""
    return value == value and bool(value)  # noqa: PLR0124 (NaN is false)


def _number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value):
        return str(int(value))
    return format(Decimal(repr(value)), "f")


# -- comparing --------------------------------------------------------------------------------------------------------

_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compared(operator: str, left: Any, right: Any) -> bool:
    """Say whether a comparison holds; of sets, for any two of their nodes. It looks at each node once."""
    if isinstance(left, list) and isinstance(right, list):
        return _compared_sets(operator, left, right)
    if isinstance(left, list) or isinstance(right, list):
        return _compared_set(operator, left, right)
    if operator in ("=", "!="):
        return _equal(left, right) is (operator == "=")
    return _ORDER[operator](number_of(left), number_of(right))


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return boolean_of(left) is boolean_of(right)
    if isinstance(left, float) or isinstance(right, float):
        return number_of(left) == number_of(right)
    return bool(left == right)


def _compared_set(operator: str, left: Any, right: Any) -> bool:
    """A set with something else: a boolean asks whether there are nodes at all."""
    nodes, other = (left, right) if isinstance(left, list) else (right, left)
    if isinstance(other, bool):
        return compared(operator, *((bool(nodes), other) if nodes is left else (other, bool(nodes))))
    spend(len(nodes) * NODE)
    for node in nodes:
        text = text_of_node(node)
        value = number_of(text) if isinstance(other, float) else text
        if compared(operator, *((value, other) if nodes is left else (other, value))):
            return True
    return False


def _compared_sets(operator: str, left: list[XNode], right: list[XNode]) -> bool:
    if not left or not right:
        return False
    spend((len(left) + len(right)) * NODE)
    ours, theirs = {text_of_node(node) for node in left}, {text_of_node(node) for node in right}
    if operator == "=":
        return not ours.isdisjoint(theirs)
    if operator == "!=":
        return len(ours) > 1 or len(theirs) > 1 or ours != theirs
    mine = [number for number in map(number_of, ours) if number == number]  # noqa: PLR0124
    others = [number for number in map(number_of, theirs) if number == number]  # noqa: PLR0124
    if not mine or not others:
        return False
    if operator.startswith("<"):
        return _ORDER[operator](min(mine), max(others))
    return _ORDER[operator](max(mine), min(others))


# -- functions --------------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """A function of XPath."""

    kind: Literal["nodes", "number", "string", "boolean"]
    least: int
    most: int
    call: Callable[..., Any]
    wants_nodes: bool = False


def _named(context: PathContext, nodes: list[XNode] | None) -> XNode | None:
    if nodes is None:
        return context.node
    return nodes[0] if nodes else None


def _local_name(context: PathContext, nodes: list[XNode] | None = None) -> str:
    node = _named(context, nodes)
    return node.local if node is not None else ""


def _namespace_uri(context: PathContext, nodes: list[XNode] | None = None) -> str:
    node = _named(context, nodes)
    return node.uri if node is not None else ""


def _name(context: PathContext, nodes: list[XNode] | None = None) -> str:
    node = _named(context, nodes)
    return node.name if node is not None else ""


def _given(context: PathContext, value: Any) -> Any:
    return [context.node] if value is None else value


def _concat(_: PathContext, *values: Any) -> str:
    texts = [string_of(value) for value in values]
    check_size(sum(map(len, texts)))
    return "".join(texts)


def _contains(_: PathContext, text: Any, part: Any) -> bool:
    whole, wanted = string_of(text), string_of(part)
    spend_search(whole, wanted)
    return wanted in whole


def _before(_: PathContext, text: Any, part: Any) -> str:
    whole, wanted = string_of(text), string_of(part)
    spend_search(whole, wanted)
    position = whole.find(wanted)
    return whole[:position] if position > 0 else ""


def _after(_: PathContext, text: Any, part: Any) -> str:
    whole, wanted = string_of(text), string_of(part)
    spend_search(whole, wanted)
    position = whole.find(wanted)
    return whole[position + len(wanted) :] if position >= 0 else ""


def _substring(_: PathContext, text: Any, start: Any, length: Any = None) -> str:
    """Positions count from 1 and are rounded; what is no number is nowhere."""
    whole = string_of(text)
    spend_text(whole)
    first = _rounded(number_of(start))
    last = math.inf if length is None else first + _rounded(number_of(length))
    if not first < last or first > len(whole) or last <= 1:
        return ""
    begin = max(int(first), 1) if math.isfinite(first) else 1
    return whole[begin - 1 : None if last > len(whole) else int(last) - 1]


def _string_length(context: PathContext, value: Any = None) -> float:
    return float(len(string_of(_given(context, value))))


def _normalized(context: PathContext, value: Any = None) -> str:
    text = string_of(_given(context, value))
    spend_text(text, ELEMENT)
    return re.sub(r"[ \t\r\n]+", " ", text).strip(_WHITE)


def _translated(_: PathContext, text: Any, old: Any, new: Any) -> str:
    whole, others = string_of(text), string_of(new)
    table: dict[int, str | None] = {}
    for index, character in enumerate(string_of(old)):
        table.setdefault(ord(character), others[index] if index < len(others) else None)
    spend_text(whole, 4)
    return translated(whole, table)


def _lang(context: PathContext, wanted: Any) -> bool:
    asked = string_of(wanted).lower()
    node: XNode | None = context.node
    while node is not None:
        spend(NODE)
        for attribute in node.attributes:
            if attribute.local == "lang" and attribute.uri == XML_NAMESPACE:
                language = attribute.text.lower()
                return language == asked or language.startswith(f"{asked}-")
        node = node.parent
    return False


def _sum(_: PathContext, nodes: list[XNode]) -> float:
    spend(len(nodes) * NODE)
    return float(sum(number_of(text_of_node(node)) for node in nodes))


def _rounded(number: float) -> float:
    """The nearest integer, of two the larger one; what rounds to 0 from below is -0."""
    if not math.isfinite(number):
        return number
    nearest = float(math.floor(number + 0.5))
    return nearest or math.copysign(0.0, number)


def _whole(convert: Callable[[float], int]) -> Callable[[PathContext, Any], float]:
    def call(_: PathContext, value: Any) -> float:
        number = number_of(value)
        return float(convert(number)) if math.isfinite(number) else number

    return call


def _id(context: PathContext, value: Any) -> list[XNode]:
    """The elements whose `xml:id` is among the words."""
    texts = [text_of_node(node) for node in value] if isinstance(value, list) else [string_of(value)]
    wanted = {word for text in texts for word in text.split()}
    nodes = context.tree.nodes
    spend(len(nodes) * NODE)
    return [node for node in nodes if any(a.text in wanted and a.name == "xml:id" for a in node.attributes)]


_MANY = 1 << 30
FUNCTIONS: dict[str, Known] = {
    "last": Known("number", 0, 0, lambda context: float(context.size)),
    "position": Known("number", 0, 0, lambda context: float(context.position)),
    "count": Known("number", 1, 1, lambda _, nodes: float(len(nodes)), wants_nodes=True),
    "id": Known("nodes", 1, 1, _id),
    "local-name": Known("string", 0, 1, _local_name, wants_nodes=True),
    "namespace-uri": Known("string", 0, 1, _namespace_uri, wants_nodes=True),
    "name": Known("string", 0, 1, _name, wants_nodes=True),
    "string": Known("string", 0, 1, lambda context, value=None: string_of(_given(context, value))),
    "concat": Known("string", 2, _MANY, _concat),
    "starts-with": Known("boolean", 2, 2, lambda _, text, part: string_of(text).startswith(string_of(part))),
    "contains": Known("boolean", 2, 2, _contains),
    "substring-before": Known("string", 2, 2, _before),
    "substring-after": Known("string", 2, 2, _after),
    "substring": Known("string", 2, 3, _substring),
    "string-length": Known("number", 0, 1, _string_length),
    "normalize-space": Known("string", 0, 1, _normalized),
    "translate": Known("string", 3, 3, _translated),
    "boolean": Known("boolean", 1, 1, lambda _, value: boolean_of(value)),
    "not": Known("boolean", 1, 1, lambda _, value: not boolean_of(value)),
    "true": Known("boolean", 0, 0, lambda _: True),
    "false": Known("boolean", 0, 0, lambda _: False),
    "lang": Known("boolean", 1, 1, _lang),
    "number": Known("number", 0, 1, lambda context, value=None: number_of(_given(context, value))),
    "sum": Known("number", 1, 1, _sum, wants_nodes=True),
    "floor": Known("number", 1, 1, _whole(math.floor)),
    "ceiling": Known("number", 1, 1, _whole(math.ceil)),
    "round": Known("number", 1, 1, lambda _, value: _rounded(number_of(value))),
}
