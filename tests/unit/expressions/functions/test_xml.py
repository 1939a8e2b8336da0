"""XML: reading and writing it, as JSON, and XPath."""

from __future__ import annotations

import sys
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions import ExpressionError, evaluate
from loom.expressions.errors import FunctionError
from loom.expressions.functions import xml_tree
from loom.expressions.functions.xml import json_of_xml, xml_of, xpath
from loom.expressions.meter import Meter, metered_by
from loom.expressions.value_text import envelope_text


def written(value: Any) -> str:
    return envelope_text(xml_of(value))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("<a/>", "<a />"),
        ("<a></a>", "<a></a>"),
        ("<a>  </a>", "<a></a>"),
        ("<a b='1'\n c=\"2\" />", '<a b="1" c="2" />'),
        ("<a> x </a>", "<a> x </a>"),
        ("<a>\n  <b/>\n</a>", "<a><b /></a>"),
        ("<a>&lt;&amp;&gt;&quot;</a>", '<a>&lt;&amp;&gt;"</a>'),
        ("<a b='&lt;&quot;&#10;'/>", '<a b="&lt;&quot;&#xA;" />'),
        ("<a><![CDATA[<x>]]>y<![CDATA[]]></a>", "<a><![CDATA[<x>]]>y<![CDATA[]]></a>"),
        ("<?go now?><a><?stop?></a><!-- end -->", "<?go now?><a><?stop?></a><!-- end -->"),
        ("\ufeff<a/>", "<a />"),
        ('<!DOCTYPE a PUBLIC "p" "s"><a/>', '<!DOCTYPE a PUBLIC "p" "s"><a />'),
        ('<x:a xmlns:x="u"><x:b x:c="1"/></x:a>', '<x:a xmlns:x="u"><x:b x:c="1" /></x:a>'),
        ("<a>" + "x" * 20_000 + "</a>", "<a>" + "x" * 20_000 + "</a>"),
        ("<ä>é😀</ä>", "<ä>é😀</ä>"),
        ("<a><b></b><c/></a>", "<a><b></b><c /></a>"),
    ],
)
def test_text_is_normalised(text: str, normal: str) -> None:
    assert written(text) == normal
    assert written(normal) == normal


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            " <?xml version='1.0'?><a/>",
            "<x:a/>",
            "<a x:b='1'/>",
            "<a b='1' b='2'/>",
        ),
        '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a/>',
        '<!DOCTYPE a SYSTEM "elsewhere.dtd"><a>&x;</a>',
        "<a>" * 101 + "</a>" * 101,
        "<a>\ud800</a>",
    ],
)
def test_what_is_no_xml_is_refused(text: str) -> None:
    with pytest.raises(FunctionError):
        xml_of(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None}, "<a />"),
        ({"a": ""}, "<a></a>"),
        ({"a": {}}, "<a />"),
        ({"a": {"@b": 1, "c": [True, 1.5, None]}}, '<a b="1"><c>true</c><c>1.5</c><c /></a>'),
        ({"a": {"b": []}}, "<a />"),
        ({"a": {"b": [[1, 2], 3]}}, "<a><b><b>1</b><b>2</b></b><b>3</b></a>"),
        ({"p:a": {"@xmlns:p": "u", "p:b": 1, "q:c": 2}}, '<p:a xmlns:p="u"><p:b>1</p:b><c>2</c></p:a>'),
        ({"?xml": {"@version": "1.0"}, "a": 1}, '<?xml version="1.0"?><a>1</a>'),
        ({"?go": "now", "a": 1}, "<?go now?><a>1</a>"),
        ({"a": {"#text": ["x", "y"], "#cdata-section": "<"}}, "<a>xy<![CDATA[<]]></a>"),
        ({"1 a": 1}, "<_x0031__x0020_a>1</_x0031__x0020_a>"),
    ],
)
def test_objects_become_xml(value: dict[str, Any], text: str) -> None:
    assert written(value) == text


@pytest.mark.parametrize(
    "value",
    [
        *(
            {},
            {"a": 1, "b": 2},
            {"a": [1, 2]},
            {"#text": "x"},
            {"": 1},
            {"a": "\x00"},
            {"a": {"#cdata-section": "]]>"}},
        ),
        *({"a": {"#text": {}}}, {"?xml": "1.0", "a": 1}, {"?xml": {"@colour": "red"}, "a": 1}, {"?x": "?>", "a": 1}),
        *(None, 5, True, [1]),
    ],
)
def test_what_cannot_become_xml_is_refused(value: Any) -> None:
    with pytest.raises(FunctionError):
        xml_of(value)


def test_a_value_that_grows_as_xml_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_tree, "MAX_NODES", 1_000)
    value: Any = "x"
    for _ in range(40):
        value = [value, value]
    with pytest.raises(FunctionError, match="parts"):
        xml_of({"a": {"b": value}})


def test_deep_objects_are_refused() -> None:
    value: Any = 1
    for _ in range(200):
        value = {"a": value}
    with pytest.raises(FunctionError, match="nested deeper"):
        xml_of(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<a>x</a>", {"a": "x"}),
        ("<a b='1'>x</a>", {"a": {"@b": "1", "#text": "x"}}),
        ("<a><b/><b>1</b><c></c></a>", {"a": {"b": [None, "1"], "c": ""}}),
        ("<a_x0020_b/>", {"a b": None}),
        ("<?go now?><a/>", {"?go": "now", "a": None}),
    ],
)
def test_xml_becomes_json(text: str, value: Any) -> None:
    assert json_of_xml(text) == value


names = st.text("abcxyz_ é1-", min_size=1, max_size=5)
values = st.recursive(
    st.one_of(
        st.none(), st.text(" <>&'\"\t\nabc]é😀", max_size=8).filter(lambda text: text == "" or text.strip() != "")
    ),
    lambda inner: st.one_of(
        st.dictionaries(names, inner, min_size=1, max_size=3), st.lists(inner, min_size=2, max_size=3)
    ),
    max_leaves=8,
)


@given(names, st.dictionaries(names, values, min_size=1, max_size=3))
def test_objects_survive_as_xml(root: str, content: dict[str, Any]) -> None:
    once = json_of_xml(written({root: content}))
    assert json_of_xml(written(once)) == once
    if not any(isinstance(item, list | dict) for item in content.values()):
        assert once == {root: content}


DOCUMENT = "<r xmlns:n='u'><a id='1'>x</a><a id='2'><![CDATA[y]]></a><n:b/><!-- c --></r>"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/r/a/text()", ["x", "y"]),
        ("//a/@id", ["1", "2"]),
        ("count(//a)", 2.0),
        ("string(//a[@id='2'])", "y"),
        ("boolean(//missing)", False),
        ("//missing", []),
        ("sum(//a/@id)", 3.0),
    ],
)
def test_what_paths_select(path: str, value: Any) -> None:
    selected = xpath(xml_of(DOCUMENT), path)
    assert selected == value
    assert type(selected) is type(value)


def test_nodes_are_selected_in_their_envelopes() -> None:
    nodes = xpath(xml_of(DOCUMENT), "//a | //*[local-name()='b'] | //comment()")
    assert [envelope_text(node).replace(' xmlns:n="u"', "") for node in nodes] == [
        '<a id="1">x</a>',
        '<a id="2"><![CDATA[y]]></a>',
        "<n:b />",
        "<!-- c -->",
    ]


@pytest.mark.parametrize("path", ["", "//", "x:y", "$v", "document('file:///etc/passwd')", "re:test('a', 'a')", "\x00"])
def test_paths_that_mean_nothing_are_refused(path: str) -> None:
    with pytest.raises(FunctionError, match="cannot select"):
        xpath(xml_of(DOCUMENT), path)


def test_paths_that_would_never_end_are_refused() -> None:
    many = xml_of("<r>" + "<a><b/></a>" * 2_000 + "</r>")
    with pytest.raises(FunctionError, match="works too long"):
        xpath(many, "count(//*[count(//*[count(//*) > 0]) > 0])")
    with pytest.raises(FunctionError, match="works too long"):
        xpath(many, "//*[/r/*[../*]]")
    assert xpath(many, "count(//a[b][not(b/c[d])]['[//[//['])") == 2_000.0


def test_paths_are_for_xml_only() -> None:
    with pytest.raises(ExpressionError, match="XML object"):
        evaluate("@xpath(binary('<a/>'), '/a')")
    with pytest.raises(ExpressionError, match="xpath"):
        evaluate("@xpath(xml('<a/>'), 5)")


class OfOlderRun(Meter):
    counts = False


def test_only_older_runs_need_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lxml", None)
    assert len(xpath(xml_of(DOCUMENT), "/r")) == 1
    with metered_by(OfOlderRun(inf, inf)), pytest.raises(FunctionError, match=r"loom-workflows\[xml\]"):
        xpath(xml_of(DOCUMENT), "/r")
