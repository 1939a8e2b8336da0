"""The cache that keeps what was used last."""

from __future__ import annotations

from loom.runtime.lru_cache import LruCache, TextCache


def test_the_value_used_longest_ago_goes_first() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert cache.items() == [("a", 1), ("c", 3)]
    assert (cache.get("b"), len(cache)) == (None, 2)


def test_a_peek_is_no_use() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert (cache.peek("a"), cache.peek("z")) == (1, None)
    cache.put("c", 3)
    assert cache.items() == [("b", 2), ("c", 3)]


def test_weights_are_bounded_too_and_the_newest_stays() -> None:
    cache: LruCache[str, str] = LruCache(max_weight=10)
    cache.put("a", "A", 6)
    cache.put("b", "B", 4)
    assert len(cache) == 2
    cache.put("a", "AA", 7)  # in the place of the one before
    assert cache.items() == [("a", "AA")]
    cache.put("c", "C", 99)
    assert cache.items() == [("c", "C")]
    cache.drop("c")
    cache.drop("c")
    cache.put("d", "D", 10)
    assert cache.items() == [("d", "D")]


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
