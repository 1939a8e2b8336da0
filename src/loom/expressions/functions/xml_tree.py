"""XML as a small tree that keeps what JSON and .NET distinguish: CDATA, comments, and `<a/>` from `<a></a>`. Pure.

May import `errors` and `limits`. expat reads, for it alone tells these apart. It opens no files, and entities of the
document's own are refused, so that no text can grow beyond itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from xml.parsers import expat

from loom.expressions.casing import translated
from loom.expressions.errors import FunctionError
from loom.expressions.limits import BOX, MAX_DEPTH, NODE
from loom.expressions.metering import spend

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


@dataclass(slots=True)
class Element:
    """An element; if it has no children, `empty` says that it is written as one tag."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    empty: bool = True


Node = Leaf | Heading | Element


def parse_xml(text: str) -> list[Node]:
    """The nodes of a document. Blank text between its parts is dropped."""
    spend(
        len(text) + (2 * text.count("<") + text.count("=") + text.count("&")) * NODE, len(text) + text.count("<") * BOX
    )
    try:
        builder = _Builder(text.removeprefix("\ufeff").encode())
        builder.parser.Parse(builder.data, True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        raise FunctionError(f"the text is no XML: {error}") from None
    return builder.document


class _Builder:
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
        # expat reports the end of `<a/>` right behind it, and that of `<a></a>` before its second tag.
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
