"""Caches by texts of strangers keep neither large texts nor what was made of them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from loom.expressions import evaluate
from loom.expressions.remembered import remembered
from loom.runtime.text_cache import TextCache

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


def test_documents_leave_when_there_is_no_room_in_all() -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        return text.upper()

    cache = TextCache(make, 3, 10)
    for text in ("aaaa", "bbbb", "aaaa", "cc", "dddd"):
        assert cache(text) == text.upper()
    assert made == ["aaaa", "bbbb", "cc", "dddd"]
    for text in ("aaaa", "cc", "dddd", "bbbb", "e" * 11, "e" * 11):
        cache(text)
    assert made[4:] == ["bbbb", "e" * 11, "e" * 11], "what was used last stays, and what never fits is not kept"
