"""XML as JSON and back, the way Newtonsoft's library does it: `@attribute`, `#text`, `#cdata-section`, `?xml`. Pure.

May import `xml_tree`, `escapes`, `arguments`, `limits`, `values` and `errors`.
"""

from __future__ import annotations

from typing import Any

from loom.expressions.arguments import check_size
from loom.expressions.errors import FunctionError
from loom.expressions.functions.escapes import decode_xml_name, encode_xml_name
from loom.expressions.functions.xml_tree import CDATA, COMMENT, DECLARATION, DOCTYPE, TEXT, Element, Heading, Leaf, Node
from loom.expressions.limits import BOX, MAX_DEPTH, MAX_NODES, MAX_TEXT, NODE
from loom.expressions.metering import spend
from loom.expressions.remembered import remembered
from loom.expressions.values import kind_of, text_of

# --- XML to JSON --------------------------------------------------------------------------------------------------


def json_of_nodes(nodes: list[Node]) -> dict[str, Any]:
    """The object of nodes: those of one name become one property, an array if there are several.

    Comments have no place in JSON: one alone vanishes, several leave an empty array.
    """
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(_property_name(node), []).append(node)
    out: dict[str, Any] = {}
    for name, group in groups.items():
        if name == COMMENT:
            if len(group) > 1:
                out[name] = []
        else:
            values = [_json_of(node) for node in group]
            out[name] = values[0] if len(values) == 1 else values
    return out


def _property_name(node: Node) -> str:
    return _decoded(node.name) if isinstance(node, Element) else node.name


def _decoded(name: str) -> str:
    prefix, colon, local = name.rpartition(":")
    return f"{prefix}{colon}{decode_xml_name(local)}"


def _json_of(node: Node) -> Any:
    if isinstance(node, Leaf):
        return node.text
    if isinstance(node, Heading):
        return {f"@{name}": value for name, value in node.attributes.items()}
    if not node.attributes:
        if not node.children:
            return None if node.empty else ""
        only = node.children[0]
        if len(node.children) == 1 and isinstance(only, Leaf) and only.name == TEXT:
            return only.text
    attributes = {f"@{_decoded(name)}": value for name, value in node.attributes.items()}
    return attributes | json_of_nodes(node.children)


# --- JSON to XML --------------------------------------------------------------------------------------------------


def nodes_of_json(value: dict[str, Any]) -> list[Node]:
    """The document of an object, which must have exactly one root beside `?xml`, `!DOCTYPE` and instructions."""
    writer = _Writer()
    nodes = [node for name, item in value.items() for node in writer.nodes(name, item, 1)]
    roots = sum(1 for node in nodes if isinstance(node, Element))
    if roots != 1 or any(isinstance(node, Leaf) and node.name in (TEXT, CDATA) for node in nodes):
        found = "Root element is missing" if not roots else f"it has {roots}"
        raise FunctionError(f"an object that becomes XML has exactly one property, its root element: {found}")
    return nodes


class _Writer:
    """Makes nodes of properties, and counts what it makes: an array may be the same one many times over."""

    def __init__(self) -> None:
        self.count = 0
        self.characters = 0
        self.prefixes = {"xml": 1, "xmlns": 1}
        """How often each prefix is declared by the elements around."""

    def nodes(self, name: str, value: Any, depth: int) -> list[Node]:
        """The nodes of one property; an array is as many nodes."""
        if isinstance(value, list) and not name.startswith(("?", "!")):
            return [node for item in value for node in self.item_nodes(name, item, depth)]
        if name in (TEXT, CDATA):
            return [Leaf(name, self.scalar(name, value))]
        if name in (DECLARATION, DOCTYPE):
            return [self.heading(name, value)]
        if name.startswith("?"):
            return [Leaf(f"?{self.named(name[1:])}", self.scalar(name, value))]
        return [self.element(name, value, depth)]

    def item_nodes(self, name: str, item: Any, depth: int) -> list[Node]:
        """An array in an array is an element with the same name around its items."""
        return [self.element(name, {name: item}, depth)] if isinstance(item, list) else self.nodes(name, item, depth)

    def element(self, name: str, value: Any, depth: int) -> Element:
        if depth > MAX_DEPTH:
            raise FunctionError(f"the value is nested deeper than {MAX_DEPTH} objects")
        if not isinstance(value, dict):
            text = self.scalar(name, value)
            children: list[Node] = [Leaf(TEXT, text)] if text else []
            return Element(self.named(name), children=children, empty=value is None)
        self.made(len(name))
        declared = [key[7:] for key in value if key.startswith("@xmlns:")]
        for prefix in declared:
            self.prefixes[prefix] = self.prefixes.get(prefix, 0) + 1
        element = Element(self.named(name))
        for key, item in value.items():
            if key.startswith("@") and not isinstance(item, dict | list):
                element.attributes[self.named(key[1:])] = self.scalar(key, item)
            else:
                element.children += self.nodes(key, item, depth + 1)
        for prefix in declared:
            self.prefixes[prefix] -= 1
        return element

    def heading(self, name: str, value: Any) -> Heading:
        if not isinstance(value, dict):
            raise FunctionError(f"the property {name!r} of an object that becomes XML must be an object")
        attributes = {key.removeprefix("@"): self.scalar(key, item) for key, item in value.items()}
        known = ("version", "encoding", "standalone") if name == DECLARATION else ("name", "public", "system")
        unknown = [key for key in attributes if key not in known]
        if unknown or not attributes.get(known[0]):
            raise FunctionError(f"the property {name!r} takes {', '.join('@' + key for key in known)}")
        if name == DOCTYPE:
            attributes["name"] = _named(attributes["name"], False)
        return Heading(name, {key: attributes[key] for key in known if key in attributes})

    def scalar(self, name: str, value: Any) -> str:
        if isinstance(value, dict | list):
            raise FunctionError(
                f"the property {name!r} of an object that becomes XML cannot be of kind {kind_of(value)}"
            )
        text = str(value).lower() if isinstance(value, bool) else text_of(value)
        self.made(len(name) + len(text))
        return text

    def named(self, name: str) -> str:
        return _named(name, bool(self.prefixes.get(name.partition(":")[0])))

    def made(self, characters: int) -> None:
        spend(2 * NODE + characters, BOX + characters)
        self.count += 1
        self.characters += characters
        if self.count > MAX_NODES:
            raise FunctionError(f"the value has more than {MAX_NODES:,} parts, too many for XML")
        if self.characters > MAX_TEXT:
            check_size(self.characters)


@remembered(1_024)
def _named(name: str, has_namespace: bool) -> str:
    """The name of an element or attribute; what a name may not have is escaped, a prefix of no namespace dropped."""
    prefix, colon, local = name.partition(":")
    if not colon:
        prefix, local = "", name
    local = encode_xml_name(local).replace(":", "_x003A_")
    if not local:
        raise FunctionError(f"{name!r} cannot be the name of an XML element or attribute")
    return f"{prefix}:{local}" if prefix and has_namespace else local
