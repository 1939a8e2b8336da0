"""Strings in UTF-16 units, and caches by text."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from loom.expressions import evaluate
from loom.expressions.strings import count_units, cut_units, remembered, upper
from loom.expressions.value_text import json_text


def test_lengths_and_cuts_count_utf16_units() -> None:
    assert count_units("añ😀") == 4
    assert cut_units("a😀b", 1, 3) == "😀"
    assert cut_units("a😀b", 3) == "b"
    assert cut_units("a😀b", 0, 2) == "a\ufffd"
    assert cut_units("a😀b", 2) == "\ufffdb"
    assert cut_units("añb", 1, 9) == "ñb"


def test_a_long_text_is_mapped_as_a_short_one_is() -> None:
    text = "aé\u2028ß😀" * 30_000
    assert upper(text) == upper(text[:5]) * 30_000
    assert json_text([text]) == f'["{json_text([text[:5]])[2:-2] * 30_000}"]'


# --- caches by texts of strangers keep neither large texts nor what was made of them ----------------------------------


MIB = 1 << 20


@pytest.mark.parametrize(
    "expression",
    [
        "@xml(json(concat('{\"', variables('text'), '\": 1}')))",
        "@convertFromUtc('2024-01-01T00:00:00Z', concat(variables('text'), 'UTC'))",
        "@formatNumber(1, 'N', concat(variables('text'), 'en-US'))",
        "@float('1', concat(variables('text'), 'en-US'))",
    ],
    ids=["names", "zones", "cultures", "numbers"],
)
def test_no_function_keeps_the_texts_of_its_callers(expression: str) -> None:
    fill = "n" if "xml" in expression else " "
    evaluate(expression, {"variables": {"text": fill}})
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(40):
            evaluate(expression, {"variables": {"text": fill * (200_000 + number)}})
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * MIB


def test_long_texts_are_worked_out_anew() -> None:
    made: list[str] = []

    @remembered(10, longest=3)
    def length(text: str) -> int:
        made.append(text)
        return len(text)

    assert [length("abc"), length("abc"), length("abcd"), length("abcd")] == [3, 3, 4, 4]
    assert made == ["abc", "abcd", "abcd"]
    length.cache_clear()
    assert length("abc") == 3
    assert made.count("abc") == 2
