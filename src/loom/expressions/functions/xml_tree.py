"""XML as a small tree, read and written as .NET does it, and the tree as JSON and back. Pure.

The tree keeps what JSON and .NET distinguish: CDATA, comments, and `<a/>` from `<a></a>`. expat reads, because it alone
tells these apart. It opens no files, and entities of the document's own are refused, so that no text can grow beyond
itself. JSON follows Newtonsoft's library: `@attribute`, `#text`, `#cdata-section`, `?xml`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from xml.parsers import expat

from msgspec import Struct

from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import check_size
from loom.expressions.functions.strings import decode_xml_name, encode_xml_name
from loom.expressions.meter import BOX, MAX_DEPTH, MAX_NODES, MAX_TEXT, NODE, spend
from loom.expressions.strings import remembered, translated
from loom.expressions.value_text import text_of
from loom.expressions.values import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT, CDATA, COMMENT = "#text", "#cdata-section", "#comment"
DECLARATION, DOCTYPE = "?xml", "!DOCTYPE"


class Leaf(NamedTuple):
    """Text, CDATA, a comment, or `?target`, an instruction."""

    name: str
    text: str


class Heading(NamedTuple):
    """`?xml`, the declaration, or `!DOCTYPE`."""

    name: str
    attributes: dict[str, str]


class Element(Struct):
    """An element; if it has no children, `empty` says that it is written as one tag."""

    name: str
    attributes: dict[str, str] = {}
    children: list[Node] = []
    empty: bool = True


Node = Leaf | Heading | Element


def parse_xml(text: str) -> list[Node]:
    """The nodes of a document. Blank text between its parts is dropped."""
    spend(
        len(text) + (2 * text.count("<") + text.count("=") + text.count("&")) * NODE, len(text) + text.count("<") * BOX
    )
    try:
        builder = _TreeBuilder(text.removeprefix("\ufeff").encode())
        builder.parser.Parse(builder.data, True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise FunctionError(f"the text is no XML: {error}") from None
    return builder.document


class _TreeBuilder:
    """Builds the tree while expat reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.document: list[Node] = []
        self.open: list[Element] = []
        self.prefixes = {"xml": 1, "xmlns": 1}
        """How often each prefix is declared by what is open. A set for each element would be copied for each."""
        self.declared: list[list[str]] = []
        self.text: list[str] = []
        # What the declaration says of the encoding is about some file; this text is decoded already.
        self.parser = parser = expat.ParserCreate("utf-8")
        parser.ordered_attributes = True
        parser.specified_attributes = True
        parser.XmlDeclHandler = self.declaration
        parser.StartDoctypeDeclHandler = self.doctype
        parser.EntityDeclHandler = self.entity
        parser.SkippedEntityHandler = self.entity
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.text.append
        parser.StartCdataSectionHandler = self.flush
        parser.EndCdataSectionHandler = self.cdata
        parser.CommentHandler = lambda text: self.leaf(COMMENT, text)
        parser.ProcessingInstructionHandler = lambda target, data: self.leaf(f"?{target}", data)

    def add(self, node: Node) -> None:
        (self.open[-1].children if self.open else self.document).append(node)

    def flush(self) -> None:
        text = "".join(self.text)
        self.text.clear()
        if text.strip(" \t\r\n"):
            self.add(Leaf(TEXT, text))

    def cdata(self) -> None:
        text = "".join(self.text)
        self.text.clear()
        self.add(Leaf(CDATA, text))

    def leaf(self, name: str, text: str) -> None:
        self.flush()
        self.add(Leaf(name, text))

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if version != "1.0":
            raise FunctionError(f"the text is XML of version {version}; only 1.0 is read")
        attributes = {"version": version}
        if encoding:
            attributes["encoding"] = encoding
        if standalone >= 0:
            attributes["standalone"] = "yes" if standalone else "no"
        self.add(Heading(DECLARATION, attributes))

    def doctype(self, name: str, system: str | None, public: str | None, _: object) -> None:
        attributes = {"name": name, "public": public, "system": system}
        self.add(Heading(DOCTYPE, {key: value for key, value in attributes.items() if value}))

    def entity(self, name: str, *_: object) -> NoReturn:
        raise FunctionError(f"the XML has the entity {name!r}; entities of a document's own are not read")

    def start(self, name: str, attributes: list[str]) -> None:
        self.flush()
        if len(self.open) >= MAX_DEPTH:
            raise FunctionError(f"the XML is nested deeper than {MAX_DEPTH} elements")
        element = Element(name, dict(zip(attributes[::2], attributes[1::2], strict=True)))
        declared = [key[6:] for key in element.attributes if key.startswith("xmlns:")]
        for prefix in declared:
            self.prefixes[prefix] = self.prefixes.get(prefix, 0) + 1
        for qualified in (name, *element.attributes):
            prefix, colon, _ = qualified.partition(":")
            if colon and not self.prefixes.get(prefix):
                raise FunctionError(f"the XML uses the prefix {prefix!r} without declaring it")
        self.add(element)
        self.open.append(element)
        self.declared.append(declared)

    def end(self, _: str) -> None:
        self.flush()
        for prefix in self.declared.pop():
            self.prefixes[prefix] -= 1
        # expat reports the end of `<a/>` right after it, and the end of `<a></a>` before its second tag.
        at = self.parser.CurrentByteIndex
        self.open.pop().empty = self.data[at - 2 : at] == b"/>"


# --- writing ------------------------------------------------------------------------------------------------------

_TEXT_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#xD;"}
_ATTRIBUTE_ESCAPES = {**_TEXT_ESCAPES, ord('"'): "&quot;", ord("\t"): "&#x9;", ord("\n"): "&#xA;"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(nodes: Sequence[Node]) -> str:
    """The text of nodes, as .NET writes it."""
    out: list[str] = []
    for node in nodes:
        _write(node, out)
    return "".join(out)


def _write(node: Node, out: list[str]) -> None:
    if isinstance(node, Leaf):
        out.append(_leaf_text(node))
    elif isinstance(node, Heading):
        out.append(_heading_text(node))
    else:
        attributes = "".join(f" {name}={_attribute(value)}" for name, value in node.attributes.items())
        if node.children or not node.empty:
            out.append(f"<{node.name}{attributes}>")
            for child in node.children:
                _write(child, out)
            out.append(f"</{node.name}>")
        else:
            out.append(f"<{node.name}{attributes} />")


def _checked(text: str) -> str:
    unfit = _NOT_XML.search(text)
    if unfit:
        raise FunctionError(f"the character U+{ord(unfit[0]):04X} cannot be in XML")
    return text


def _attribute(value: str) -> str:
    return f'"{translated(_checked(value), _ATTRIBUTE_ESCAPES)}"'


_MARKS = {CDATA: ("<![CDATA[", "]]>"), COMMENT: ("<!--", "-->")}


def _leaf_text(leaf: Leaf) -> str:
    text = _checked(leaf.text)
    if leaf.name == TEXT:
        return translated(text, _TEXT_ESCAPES)
    begin, end = _MARKS.get(leaf.name) or (f"<{leaf.name} " if text else f"<{leaf.name}", "?>")
    if end in text:
        raise FunctionError(f"the text of a {leaf.name} cannot have {end!r} in it")
    return f"{begin}{text}{end}"


def _heading_text(heading: Heading) -> str:
    attributes = heading.attributes
    if heading.name == DECLARATION:
        return "<?xml" + "".join(f" {name}={_attribute(value)}" for name, value in attributes.items()) + "?>"
    public, system = attributes.get("public"), attributes.get("system")
    if public:
        return f"<!DOCTYPE {attributes['name']} PUBLIC {_attribute(public)} {_attribute(system or '')}>"
    return f"<!DOCTYPE {attributes['name']}{f' SYSTEM {_attribute(system)}' if system else ''}>"


# --- XML to JSON --------------------------------------------------------------------------------------------------


def json_of_nodes(nodes: list[Node]) -> dict[str, Any]:
    """The object of nodes: nodes of one name become one property, an array if there are several.

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
    writer = _NodeWriter()
    nodes = [node for name, item in value.items() for node in writer.nodes(name, item, 1)]
    roots = sum(1 for node in nodes if isinstance(node, Element))
    if roots != 1 or any(isinstance(node, Leaf) and node.name in (TEXT, CDATA) for node in nodes):
        found = "Root element is missing" if not roots else f"it has {roots}"
        raise FunctionError(f"an object that becomes XML has exactly one property, its root element: {found}")
    return nodes


class _NodeWriter:
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
