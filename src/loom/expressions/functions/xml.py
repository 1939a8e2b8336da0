"""The functions of XML: `xml`, `xpath`, and what `json` makes of XML. Pure.

XPath is Loom's own and counts the nodes that it visits. Runs that began before there were budgets keep lxml's (the
extra `xml`), which stalls on paths that it walks again and again.
"""

from __future__ import annotations

import re
from typing import Any

from loom.expressions.errors import FunctionError, not_installed
from loom.expressions.functions.registry import check_count, check_size, function, refuse, want_string
from loom.expressions.functions.xml_tree import (
    Element,
    Heading,
    Node,
    json_of_nodes,
    nodes_of_json,
    parse_xml,
    xml_text,
)
from loom.expressions.functions.xpath import select
from loom.expressions.functions.xpath_nodes import ATTRIBUTE, NAMESPACE, ROOT, TEXT_NODE, Tree, XNode
from loom.expressions.meter import NODE, Meter, meter, metered_by, spend
from loom.expressions.value_text import envelope, envelope_text
from loom.expressions.values import CONTENT, CONTENT_TYPE, is_envelope

XML_TYPE = "application/xml;charset=utf-8"


@function("xml", 1)
def xml_of(value: Any) -> dict[str, Any]:
    """XML in its envelope: of a text, of an object with one root, or of content that is XML already."""
    if isinstance(value, str):
        return _enveloped(xml_text(parse_xml(value)))
    if is_envelope(value):
        return {CONTENT_TYPE: XML_TYPE, CONTENT: value[CONTENT]}
    if isinstance(value, dict):
        return _enveloped(xml_text(nodes_of_json(value)))
    raise refuse("value", "a string or an object", value)


def json_of_xml(text: str) -> dict[str, Any]:
    """Convert XML to JSON, as the function `json` does."""
    return json_of_nodes(parse_xml(text))


@function("xpath", 2)
def xpath(xml: Any, path: Any) -> Any:
    """Select with an XPath 1.0 expression in XML: an array of nodes, or a string, a float or a boolean."""
    if not is_envelope(xml) or not _is_xml(xml[CONTENT_TYPE]):
        raise FunctionError("expects its argument 'xml' to be an XML object, as xml(…) makes it")
    nodes = parse_xml(envelope_text(xml))
    path = want_string("xpath", path)
    counting = meter() or Meter()  # a path is never walked without one
    if not counting.counts:
        return _selected_by_lxml(nodes, path)
    try:
        with metered_by(counting):
            selected = select(Tree(nodes), path)
    except FunctionError as error:
        raise FunctionError(f"cannot select {path[:200]!r}: {error}") from None
    if not isinstance(selected, list):
        return selected
    check_count(len(selected))
    return [_shown(node) for node in selected if node.kind != ROOT]


def _shown(node: XNode) -> Any:
    """An element in its envelope, with the namespaces around it; texts and attributes as they are."""
    if node.kind in (ATTRIBUTE, NAMESPACE, TEXT_NODE):
        return node.text
    source = node.source
    if isinstance(source, Element):
        assert node.scope is not None
        declared = {f"xmlns:{prefix}" if prefix else "xmlns": uri for prefix, uri in node.scope.all().items()}
        del declared["xmlns:xml"]
        source = Element(source.name, declared | source.attributes, source.children, source.empty)
    assert source is not None
    spend((node.end - node.index) * NODE)
    text = xml_text([source])
    check_size(len(text))
    return _enveloped(text)


# -- runs from before budgets -----------------------------------------------------------------------------------------


def _selected_by_lxml(nodes: list[Node], path: str) -> Any:
    try:
        from lxml import etree
    except ImportError:
        raise not_installed("xpath", "xml") from None
    # Without its declaration, the text is in no encoding but its own, and there is nothing to load.
    text = xml_text([node for node in nodes if not isinstance(node, Heading)])
    _check_cost(path, text.count("<"))
    spend(text.count("<") ** 2)  # such a run has no budget, but its driver may want to be patient elsewhere
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, huge_tree=False, load_dtd=False, strip_cdata=False
    )
    try:
        root = etree.fromstring(text, parser)
        selected = etree.XPath(path, regexp=False, smart_strings=False)(root.getroottree())
    except (etree.XMLSyntaxError, etree.XPathError, ValueError) as error:
        raise FunctionError(f"cannot select {path[:200]!r}: {error}") from None
    if not isinstance(selected, list):
        return selected
    check_count(len(selected))
    return [_selected(node, etree) for node in selected]


_COSTLY = re.compile(
    r"'[^']*'|\"[^\"]*\"|[\[\]]|//|\.\.|(?:descendant|following|preceding)[a-z-]*\s*::|(?<=[\[(,|=<>+*-])\s*/"
)
_MOST_VISITS = 10**9


def _check_cost(path: str, nodes: int) -> None:
    """Refuse a path whose predicates walk the whole document for each of its nodes, and again within that."""
    depth = deepest = 0
    for match in _COSTLY.finditer(path):
        part = match.group()
        if part in "[]":
            depth += 1 if part == "[" else -1
        elif part[0] not in "'\"":
            deepest = max(deepest, depth)
    # The exponent is cut off: beyond it, any document of two nodes is too large.
    if nodes ** min(deepest + 1, 40) > _MOST_VISITS:
        raise FunctionError(f"cannot select {path[:200]!r}: its predicates would visit {nodes} nodes too many times")


def _selected(node: Any, etree: Any) -> Any:
    """An element in its envelope; texts and attributes as they are; a namespace as its address."""
    if isinstance(node, str):
        return node
    if isinstance(node, tuple):
        return node[1]
    text = etree.tostring(node, encoding="unicode", with_tail=False)
    # Written again as .NET does it; a comment or an instruction alone is no document.
    return _enveloped(xml_text(parse_xml(text)) if isinstance(node.tag, str) else text)


def _is_xml(content_type: Any) -> bool:
    return isinstance(content_type, str) and content_type.partition(";")[0].strip().lower().endswith(("/xml", "+xml"))


def _enveloped(text: str) -> dict[str, Any]:
    return envelope(XML_TYPE, text.encode())
