"""The string functions: units, casing, searching, and the escapes of names and values."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.errors import FunctionError
from loom.expressions.functions import strings
from loom.expressions.meter import MAX_ITEMS, MAX_TEXT

SMILE = "\U0001f600"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


class Chance:
    """An environment of which functions ask only numbers."""

    def __init__(self, *numbers: int) -> None:
        self._numbers: Iterator[int] = iter(numbers)

    def random_below(self, limit: int) -> int:
        return next(self._numbers) % limit


# --- making texts -------------------------------------------------------------------------------------------------


def test_concat_takes_every_kind_as_text() -> None:
    assert strings.concat("a", None, True, 1, 2.0, [1, None], {"k": 1.0}) == 'aTrue12[1,null]{"k":1.0}'


def test_concat_refuses_what_would_be_too_long_before_it_builds_it() -> None:
    half = "x" * (MAX_TEXT // 2)
    assert len(strings.concat(half, half)) == MAX_TEXT
    with pytest.raises(FunctionError, match="characters"):
        strings.concat(half, half, "x")


def test_replace_takes_every_occurrence_and_knows_no_patterns() -> None:
    assert strings.replace("a.b.c", ".", "") == "abc"
    assert strings.replace("abc", ".", "x") == "abc"
    assert strings.replace("aAa", "a", "b") == "bAb"


def test_replace_refuses_nothing_as_old_text_and_an_explosion() -> None:
    with pytest.raises(FunctionError, match="oldText"):
        strings.replace("abc", "", "x")
    with pytest.raises(FunctionError, match="characters"):
        strings.replace("x" * 100_000, "x", "y" * 100_000)


@pytest.mark.parametrize(
    ("text", "separator", "parts"),
    [
        (",a,,b,", ",", ["", "a", "", "b", ""]),
        ("abc", "", ["abc"]),
        ("", "", [""]),
        ("", ",", [""]),
        ("aXbxc", "x", ["aXb", "c"]),
    ],
)
def test_split_keeps_empty_parts_and_minds_case(text: str, separator: str, parts: list[str]) -> None:
    assert strings.split(text, separator) == parts


def test_split_refuses_too_many_parts() -> None:
    with pytest.raises(FunctionError, match="elements"):
        strings.split("," * MAX_ITEMS, ",")


@pytest.mark.parametrize("separator", [1, True, None, [","], {}])
def test_split_wants_a_string_as_separator(separator: object) -> None:
    with pytest.raises(FunctionError, match="'separator' to be a string"):
        strings.split("a", separator)


@given(TEXTS, TEXTS.filter(bool))
def test_the_parts_of_split_joined_are_the_text(text: str, separator: str) -> None:
    assert separator.join(strings.split(text, separator)) == text


def test_casing_is_invariant_and_keeps_the_length() -> None:
    assert strings.to_lower("\u0131I\u0130\u00c7 \u03a3\u03a3") == "\u0131i\u0130\u00e7 \u03c3\u03c3"
    assert strings.to_upper("\u0131i\u0130\u00e7 stra\u00dfe \u017f") == "\u0131I\u0130\u00c7 STRA\u00dfE \u017f"
    assert strings.to_upper("\U00010428") == "\U00010400"


@pytest.mark.parametrize("call", [strings.to_lower, strings.to_upper, strings.trim])
@pytest.mark.parametrize("value", [None, 1, True, [], {"$content-type": "text/plain", "$content": ""}])
def test_casing_and_trim_want_strings_only(call: object, value: object) -> None:
    with pytest.raises(FunctionError, match="'text' to be a string"):
        call(value)  # type: ignore[operator]


def test_trim_takes_all_unicode_white_space_but_no_separators_of_records() -> None:
    assert strings.trim("\u3000\xa0\r\n\t\x85 a b \u2028\u200a") == "a b"
    assert strings.trim("\x1ca\u200b") == "\x1ca\u200b"


# --- cutting ------------------------------------------------------------------------------------------------------


def test_substring_counts_utf16_units_and_leaves_no_half_characters() -> None:
    text = f"a{SMILE}b"
    assert strings.substring(text, 3) == "b"
    assert strings.substring(text, 1, 2) == SMILE
    assert strings.substring(text, 0, 2) == "a\ufffd"
    assert strings.substring(text, 2) == "\ufffdb"
    assert strings.substring("abc", 3) == ""


@pytest.mark.parametrize(("start", "count"), [(-1, None), (-1, 2), (0, -1), (4, None), (2, 2), (39, -10)])
def test_substring_refuses_what_is_not_there(start: int, count: int | None) -> None:
    with pytest.raises(FunctionError, match="cannot take"):
        strings.substring("abc", start, count)


@given(TEXTS, st.integers(-40, 40), st.integers(-40, 40) | st.none())
def test_slice_is_pythons_slice_of_the_units(text: str, start: int, end: int | None) -> None:
    units = text.encode("utf-16-le")
    pairs = [units[i : i + 2] for i in range(0, len(units), 2)]
    expected = b"".join(pairs[start:end]).decode("utf-16-le", "replace")
    assert strings.slice_(text, start, end) == expected


# --- searching ----------------------------------------------------------------------------------------------------


def test_searching_ignores_case_but_matches_no_other_letters() -> None:
    assert strings.starts_with("\u00c4pfel", "\u00e4P")
    assert strings.ends_with("hello WORLD", "World")
    assert strings.index_of("Stra\u00dfe", "SS") == -1
    assert strings.index_of("I", "\u0131") == -1
    assert strings.last_index_of("FooFOOfoo", "foo") == 6


def test_positions_count_utf16_units() -> None:
    assert strings.index_of(f"{SMILE}{SMILE}x", "X") == 4
    assert strings.last_index_of(f"x{SMILE}x", "x") == 3
    assert strings.nth_index_of(f"x{SMILE}x", "x", 2) == 3


def test_nothing_is_found_at_the_beginning_and_last_at_the_last_character() -> None:
    assert [strings.index_of("abc", ""), strings.index_of("", "")] == [0, 0]
    assert [strings.last_index_of("abc", ""), strings.last_index_of("", "")] == [2, 0]
    assert [strings.nth_index_of("abc", "", n) for n in (1, 3, 4, -1, -3, -4)] == [0, 2, -1, 2, 0, -1]


@pytest.mark.parametrize(("n", "position"), [(1, 0), (2, 2), (3, -1), (-1, 3), (-2, 1), (-3, -1)])
def test_nth_index_of_counts_occurrences_that_do_not_overlap(n: int, position: int) -> None:
    assert strings.nth_index_of("aaaaa", "AA", n) == position


def test_nth_index_of_has_no_occurrence_0() -> None:
    with pytest.raises(FunctionError, match="occurrence"):
        strings.nth_index_of("a", "a", 0)


@given(st.text("abA", max_size=12), st.text("ab", min_size=1, max_size=3))
def test_the_first_and_last_occurrence_are_those_of_the_other_functions(text: str, search: str) -> None:
    assert strings.nth_index_of(text, search, 1) == strings.index_of(text, search)
    assert strings.nth_index_of(text, search, -1) == strings.last_index_of(text, search)


# --- guid ---------------------------------------------------------------------------------------------------------

FORMS = {
    "D": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "n": r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}",
    "B": r"\{[0-9a-f-]{36}\}",
    "p": r"\([0-9a-f-]{36}\)",
    "X": r"\{0x[0-9a-f]{8},0x[0-9a-f]{4},0x4[0-9a-f]{3},\{0x[89ab][0-9a-f](,0x[0-9a-f]{2}){7}\}\}",
}


@pytest.mark.parametrize("form", FORMS)
def test_guid_has_five_forms(form: str) -> None:
    assert re.fullmatch(FORMS[form], strings.guid(Chance(2**32 - 1, 12345, 2**31, 7), form))


def test_guid_is_made_of_the_numbers_it_is_given() -> None:
    assert strings.guid(Chance(0, 0, 0, 1)) == "00000000-0000-4000-8000-000000000001"
    with pytest.raises(FunctionError, match="N, D, B, P and X"):
        strings.guid(Chance(), "Q")


# --- escapes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Order Details", "Order_x0020_Details"),
        ("1st", "_x0031_st"),
        ("a=b", "a_x003D_b"),
        ("_x0020_", "_x005F_x0020_"),
        ("_x00", "_x00"),
        (SMILE, "_x0001F600_"),
        ("a:b-c.d\u00e4", "a:b-c.d\u00e4"),
        ("", ""),
    ],
)
def test_xml_names_have_escapes_for_what_a_name_may_not_have(text: str, name: str) -> None:
    assert strings.encode_xml_name(text) == name
    assert strings.decode_xml_name(name) == text


@given(TEXTS)
def test_every_text_comes_back_from_its_xml_name_and_value(text: str) -> None:
    assert strings.decode_xml_value(strings.encode_xml_value(text)) == text
    if "\0" not in text:
        assert strings.decode_xml_name(strings.encode_xml_name(text)) == text


def test_xml_values_have_entities() -> None:
    assert strings.encode_xml_value("<a b='c' d=\"e\">&") == "&lt;a b=&apos;c&apos; d=&quot;e&quot;&gt;&amp;"
    assert strings.decode_xml_value("&#65;&#x42;&amp;amp; &nope; &#0; &#xD800;") == "AB&amp; &nope; &#0; &#xD800;"


def test_byte_order_marks_are_dropped_once_from_texts_and_binary_content() -> None:
    assert strings.trim_byte_order_mark("\ufeff\ufeffa") == "\ufeffa"
    marked = {"$content-type": "text/plain", "$content": "77u/YQ=="}
    assert strings.trim_byte_order_mark(marked) == {"$content-type": "text/plain", "$content": "YQ=="}
    unmarked = {"$content-type": "text/plain", "$content": "Y Q=="}
    assert strings.trim_byte_order_mark(unmarked) is unmarked
    with pytest.raises(FunctionError, match="'content'"):
        strings.trim_byte_order_mark(None)
