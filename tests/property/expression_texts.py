"""Template strings to try: well-formed ones from the grammar, the same with damage, and noise."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from loom.expressions.functions import all_names

SPACES = st.sampled_from(["", "", "", "", " ", "\n", "\t ", "\u3000"])
NAMES = st.sampled_from([*all_names(), "nope", "naïve", "x-1", "TRUE", "#"])
KEYS = st.sampled_from(["a", "body", "Status", "b c", "a/b", "5", "é"])
PIECES = st.sampled_from(
    ["@", "@@", "@{", "@@{", "{", "}", "(", ")", "[", "]", "?", ".", ",", "'", "''", " ", "\n", "+", "-", "1", "1.",
     ".5", "2e1", "1e", "true", "null", "concat(", "equals", "variables('a')", "item()", "createArray(1,2)", "😀", "é",
     '"', "\\", "9223372036854775807", "0", "'x'", "range(1,9)", "[f(", "[a("]
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.integers(-3, 12).map(str),
    st.sampled_from(["1.", "+.5", "-01.0", "3e1", "1E-3", "1e308", "+0", "007", "1e999"]),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:+f}"),
)
QUOTED = st.text(max_size=8).map(lambda text: "'" + text.replace("'", "''") + "'")
DATES = st.sampled_from(
    ["'2026-01-02T03:04:05Z'", "'UTC'", "'d'", "'Day'", "'<a><b/></a>'", "'//b'", "'{\"a\":[1]}'", "'aGk='"]
)
LITERALS = st.one_of(QUOTED, DATES, NUMBERS, st.sampled_from(["true", "False", "NULL", "null"]))


@st.composite
def calls(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    space = lambda: draw(SPACES)  # noqa: E731
    arguments = draw(st.lists(inner, max_size=4))
    text = draw(NAMES) + space() + "(" + space() + (space() + "," + space()).join(arguments) + space() + ")"
    for _ in range(draw(st.integers(0, 2))):
        text += space() + draw(st.sampled_from(["", "?"])) + space()
        if draw(st.booleans()):
            text += "." + space() + draw(st.sampled_from(["a", "body", "5", "Status", "é"]))
        else:
            key = draw(st.one_of(KEYS.map(lambda key: f"'{key}'"), st.integers(-1, 3).map(str), inner))
            text += "[" + space() + key + space() + "]"
    return text


EXPRESSIONS = st.recursive(LITERALS, calls, max_leaves=8)


@st.composite
def templates(draw: st.DrawFn) -> str:
    """A template string that parses."""
    if draw(st.booleans()):
        return "@" + draw(SPACES) + draw(EXPRESSIONS) + draw(SPACES)
    plain = st.text(max_size=5).map(lambda text: text.replace("@", ""))
    parts = draw(st.lists(st.one_of(EXPRESSIONS.map(lambda text: "@{" + text + "}"), plain), max_size=4))
    return "".join(parts)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A template string in which something is missing, doubled or too much."""
    text = draw(templates())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 3)))
        text = text[:start] + draw(st.one_of(st.just(""), PIECES, st.just(text[start:end] * 2))) + text[end:]
    return text


NOISE = st.one_of(
    st.lists(PIECES, max_size=12).map("".join), st.lists(PIECES, max_size=12).map(lambda parts: "@" + "".join(parts))
)
ANY: st.SearchStrategy[str] = st.one_of(templates(), damaged(), NOISE, st.text(max_size=20))

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(-(10**20), 10**20, places=3),
    st.text(max_size=6),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
