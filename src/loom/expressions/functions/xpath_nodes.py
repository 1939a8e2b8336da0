"""XML as XPath sees it: nodes in the order of the document, with their axes and their values. Pure.

Every node knows its place in the row of all nodes, so descendants, and what follows or precedes, are slices, and sets
are ordered by number. The evaluator counts the nodes of each axis that it walks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.expressions.functions.xml_tree import CDATA, COMMENT, TEXT, Element, Heading, Leaf
from loom.expressions.meter import ELEMENT, spend

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.functions.xml_tree import Node as TreeNode

ROOT, ELEMENT_NODE, TEXT_NODE, COMMENT_NODE, INSTRUCTION, ATTRIBUTE, NAMESPACE = range(7)
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"


class NamespaceScope:
    """The namespaces that an element declares, and the nearest element around it that declares some."""

    __slots__ = ("around", "declared")

    def __init__(self, declared: dict[str, str], around: NamespaceScope | None) -> None:
        self.declared = declared
        self.around = around

    def find(self, prefix: str) -> str:
        """The namespace of a prefix, which is there; none for no prefix."""
        scope: NamespaceScope | None = self
        while scope is not None:
            if prefix in scope.declared:
                return scope.declared[prefix]
            scope = scope.around
        return ""

    def all(self) -> dict[str, str]:
        """All namespaces in scope, the declarations of the element itself first."""
        found: dict[str, str] = {}
        scope: NamespaceScope | None = self
        while scope is not None:
            spend(len(scope.declared) * ELEMENT)
            for prefix, uri in scope.declared.items():
                found.setdefault(prefix, uri)
            scope = scope.around
        return found


class XNode:
    """A node of a document."""

    __slots__ = (
        "attributes", "children", "end", "index", "kind", "local", "name", "order", "parent", "scope", "source",
        "text", "uri",
    )  # fmt: skip

    def __init__(self, kind: int, parent: XNode | None, order: int, index: int) -> None:
        self.kind = kind
        self.parent = parent
        self.order = order
        """Its number in the document, attributes counted."""
        self.index = self.end = index
        """Its place among all nodes that are no attributes, and the place after its last descendant."""
        self.name = self.local = self.uri = ""
        self.text = ""
        """Of a node without children: its value."""
        self.children: list[XNode] = []
        self.attributes: list[XNode] = []
        self.scope: NamespaceScope | None = None
        self.source: Leaf | Element | None = None


class Tree:
    """A document: all its nodes."""

    def __init__(self, nodes: list[TreeNode]) -> None:
        self.nodes: list[XNode] = []
        self._orders = 0
        self._own: dict[str, Callable[[XNode], list[XNode]]] = {
            "descendant": self._descendant,
            "descendant-or-self": self._descendant_or_self,
            "following": self._following,
            "preceding": self._preceding,
            "namespace": _namespace,
        }
        self.root = self._node(ROOT, None)
        scope = NamespaceScope({"xml": XML_NAMESPACE}, None)
        self.root.scope = scope
        for node in nodes:
            if not isinstance(node, Heading):
                self.root.children.append(self._add(node, self.root, scope))
        self.root.end = len(self.nodes)

    def _node(self, kind: int, parent: XNode | None) -> XNode:
        node = XNode(kind, parent, self._orders, len(self.nodes))
        self._orders += 1
        if kind != ATTRIBUTE:
            self.nodes.append(node)
            node.end = len(self.nodes)
        return node

    def _add(self, source: Leaf | Element, parent: XNode, scope: NamespaceScope) -> XNode:
        if isinstance(source, Element):
            return self._element(source, parent, scope)
        kind = _KINDS.get(source.name, INSTRUCTION)
        node = self._node(kind, parent)
        node.text, node.source = source.text, source
        if kind == INSTRUCTION:
            node.name = node.local = source.name[1:]
        return node

    def _element(self, source: Element, parent: XNode, scope: NamespaceScope) -> XNode:
        declared = {key[6:]: uri for key, uri in source.attributes.items() if key.startswith("xmlns:")}
        if "xmlns" in source.attributes:
            declared[""] = source.attributes["xmlns"]
        scope = NamespaceScope(declared, scope) if declared else scope
        node = self._node(ELEMENT_NODE, parent)
        node.scope, node.source = scope, source
        node.name = source.name
        prefix, _, node.local = source.name.rpartition(":")
        node.uri = scope.find(prefix)
        for name, value in source.attributes.items():
            if name == "xmlns" or name.startswith("xmlns:"):
                continue
            attribute = self._node(ATTRIBUTE, node)
            attribute.name, attribute.text = name, value
            prefix, _, attribute.local = name.rpartition(":")
            attribute.uri = scope.find(prefix) if prefix else ""
            node.attributes.append(attribute)
        for child in source.children:
            if not isinstance(child, Heading):
                node.children.append(self._add(child, node, scope))
        node.end = len(self.nodes)
        return node

    # -- axes: in the order that positions are counted in -------------------------------------------------------------

    def axis(self, name: str) -> Callable[[XNode], list[XNode]]:
        """The function that gives the nodes along an axis."""
        return _AXES.get(name) or self._own[name]

    def _descendant(self, node: XNode) -> list[XNode]:
        return self.nodes[node.index + 1 : node.end] if node.kind <= ELEMENT_NODE else []

    def _descendant_or_self(self, node: XNode) -> list[XNode]:
        return self.nodes[node.index : node.end] if node.kind <= ELEMENT_NODE else [node]

    def _following(self, node: XNode) -> list[XNode]:
        if node.kind in (ATTRIBUTE, NAMESPACE):
            assert node.parent is not None
            return self.nodes[node.parent.index + 1 :]
        return self.nodes[node.end :]

    def _preceding(self, node: XNode) -> list[XNode]:
        if node.kind in (ATTRIBUTE, NAMESPACE):
            assert node.parent is not None
            node = node.parent
        around = set(_ancestor(node))
        return [other for other in reversed(self.nodes[: node.index]) if other not in around]


def _namespace(node: XNode) -> list[XNode]:
    if node.kind != ELEMENT_NODE or node.scope is None:
        return []
    found = []
    for number, (prefix, uri) in enumerate(sorted(node.scope.all().items()), 1):
        one = XNode(NAMESPACE, node, node.order, number)
        one.name = one.local = prefix
        one.text = uri
        found.append(one)
    return found


def _siblings(node: XNode, after: bool) -> list[XNode]:
    if node.parent is None or node.kind in (ATTRIBUTE, NAMESPACE):
        return []
    siblings = node.parent.children
    low, high = 0, len(siblings)
    while low < high:  # They stand in the order of the document.
        middle = (low + high) // 2
        low, high = (middle + 1, high) if siblings[middle].index < node.index else (low, middle)
    return siblings[low + 1 :] if after else siblings[:low][::-1]


def _ancestor(node: XNode) -> list[XNode]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


_KINDS = {TEXT: TEXT_NODE, CDATA: TEXT_NODE, COMMENT: COMMENT_NODE}
_AXES: dict[str, Callable[[XNode], list[XNode]]] = {
    "child": lambda node: node.children,
    "self": lambda node: [node],
    "parent": lambda node: [node.parent] if node.parent is not None else [],
    "attribute": lambda node: node.attributes,
    "ancestor": _ancestor,
    "ancestor-or-self": lambda node: [node, *_ancestor(node)],
    "following-sibling": lambda node: _siblings(node, after=True),
    "preceding-sibling": lambda node: _siblings(node, after=False),
}
AXES = frozenset({*_AXES, "descendant", "descendant-or-self", "following", "preceding", "namespace"})
REVERSED = frozenset({"ancestor", "ancestor-or-self", "preceding", "preceding-sibling"})
