"""XPath of Loom's own against lxml's, on random paths and documents; and its values where the two differ."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from xpath_samples import random_document, random_expression, random_path

from loom.expressions.errors import FunctionError
from loom.expressions.functions.xml_tree import parse_xml
from loom.expressions.functions.xpath import select
from loom.expressions.functions.xpath_nodes import Tree

etree = pytest.importorskip("lxml.etree")


def ours(text: str, path: str) -> Any:
    found = select(Tree(parse_xml(text)), path)
    if not isinstance(found, list):
        return found
    kinds = {1: "element", 2: "text", 3: "comment", 4: "instruction", 5: "attribute"}
    return [(kinds[node.kind], node.name if node.kind in (1, 4) else node.text) for node in found if node.kind]


def theirs(text: str, path: str) -> Any:
    root = etree.fromstring(text, etree.XMLParser(strip_cdata=False))
    found = etree.XPath(path, regexp=False)(root)
    if not isinstance(found, list):
        return found
    out = []
    for node in found:
        if isinstance(node, str):
            out.append(("attribute" if node.is_attribute else "text", str(node)))
        elif isinstance(node, etree._Comment):
            out.append(("comment", node.text))
        elif isinstance(node, etree._ProcessingInstruction):
            out.append(("instruction", node.target))
        else:
            out.append(("element", node.tag))
    return out


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return isinstance(a, bool) is isinstance(b, bool) and bool(a == b)


@pytest.mark.parametrize("seed", range(6))
def test_random_paths_select_what_lxml_selects(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        text = random_document(rng)
        path = random_path(rng) if rng.random() < 0.5 else random_expression(rng)
        try:
            expected = theirs(text, path)
        except etree.XPathError as error:
            if "Invalid context" in str(error):
                continue  # It has no position outside of a predicate.
            with pytest.raises(FunctionError):
                ours(text, path)
            continue
        assert same(ours(text, path), expected), (text, path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("string(1000000000000)", "1000000000000"),
        ("string(0.000001)", "0.000001"),
        ("number('1e3')", math.nan),
        ("number('+1')", math.nan),
        ("string(-0)", "0"),
        ("1 div 0", math.inf),
        ("-1 div 0", -math.inf),
        ("string(0 div 0)", "NaN"),
        ("5 mod -2", 1.0),
        ("-5 mod 2", -1.0),
        ("substring('12345', 1.5, 2.6)", "234"),
        ("substring('12345', 0 div 0, 3)", ""),
        ("substring('12345', -42, 1 div 0)", "12345"),
        ("substring('12345', -1 div 0, 1 div 0)", ""),
        ("round(-0.5)", 0.0),
        ("* * 2", math.nan),
        ("2 * 3", 6.0),
        ("div div mod", math.nan),
        ("count(namespace::*)", 1.0),
        ("count(id('k'))", 1.0),
        ("lang('en')", True),
        ("count(@xml:lang)", 1.0),
    ],
)
def test_values_are_those_of_the_recommendation(path: str, value: Any) -> None:
    assert same(ours("<r xml:lang='en-US'><a xml:id='k'/><div/><mod/></r>", path), value)


def test_names_with_namespaces_are_found_without() -> None:
    text = "<r xmlns='u' xmlns:p='v'><p:a p:x='1' y='2'/></r>"
    assert ours(text, "//a") == []
    assert ours(text, "//*[namespace-uri() = 'v'][local-name() = 'a'][name() = 'p:a']/@*") == [
        ("attribute", "1"),
        ("attribute", "2"),
    ]
    assert ours(text, "//@x") == []


@pytest.mark.parametrize(
    "path", ["a[", "a]", "a b", "a/", "1 +", "f()", "count()", "count(1)", "bad::a", "(1)/a", "1[1]"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(FunctionError):
        ours("<r/>", path)


def test_nesting_is_bounded() -> None:
    with pytest.raises(FunctionError, match="levels deep"):
        ours("<r/>", "(" * 200 + "1" + ")" * 200)
    assert ours("<r/>", "-" * 500 + "1") == 1.0
