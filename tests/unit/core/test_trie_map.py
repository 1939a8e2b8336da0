"""The map in plain Python is a map: compared with dicts and with `immutables`, and the engine on it."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.core.trie_map import TrieMap

ROOT = Path(__file__).resolve().parents[3]


class Key:
    """A key whose hash says little."""

    def __init__(self, name: int, of: int) -> None:
        self.name, self.of = name, of

    def __hash__(self) -> int:
        return self.name % self.of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.name == other.name

    def __repr__(self) -> str:
        return f"Key({self.name})"


KEYS = st.one_of(
    st.integers(-50, 50),
    st.integers(0, 200).map(lambda name: Key(name, 3)),
    st.integers(0, 200).map(lambda name: Key(name, 1)),
    st.integers(0, 100).map(lambda name: name << 60),
    st.text(max_size=2),
)
CHANGES = st.lists(st.tuples(st.booleans(), KEYS, st.integers()), max_size=150)


def assert_same(trie: TrieMap[Any, Any], model: dict[Any, Any]) -> None:
    assert len(trie) == len(model)
    assert dict(trie.items()) == model
    assert {*trie} == {*model} == {*trie.keys()}
    assert sorted(map(repr, trie.values())) == sorted(map(repr, model.values()))
    assert trie == TrieMap(model)
    assert hash(trie) == hash(TrieMap(model))
    for key, value in model.items():
        assert key in trie
        assert trie[key] == trie.get(key) == value


@given(CHANGES)
def test_a_map_is_what_a_dict_is_and_old_versions_stay(changes: list[tuple[bool, Any, int]]) -> None:
    trie: TrieMap[Any, Any] = TrieMap()
    model: dict[Any, Any] = {}
    versions = []
    for is_set, key, value in changes:
        versions.append((trie, dict(model)))
        if is_set or key not in model:
            trie, model[key] = trie.set(key, value), value
        else:
            trie = trie.delete(key)
            del model[key]
    assert_same(trie, model)
    for old, expected in versions[:: max(len(versions) // 5, 1)]:
        assert_same(old, expected)


@pytest.mark.parametrize("of", [1, 3, 1 << 70], ids=["one hash", "three hashes", "own hashes"])
def test_a_map_grows_and_shrinks_key_by_key(of: int) -> None:
    trie: TrieMap[Any, Any] = TrieMap()
    model: dict[Any, Any] = {}
    keys = [Key(name, of) for name in range(60 if of == 1 else 700)]
    for key in keys:
        trie, model[key] = trie.set(key, key.name), key.name
        assert len(trie) == len(model)
    assert_same(trie, model)
    for key in keys[::2] + keys[1::2]:
        trie = trie.delete(key)
        del model[key]
        assert len(trie) == len(model)
        assert len(model) % 50 or dict(trie.items()) == model
    assert trie == TrieMap()


@given(st.dictionaries(KEYS, st.integers(), max_size=80), st.dictionaries(KEYS, st.integers(), max_size=80))
def test_update_sets_all(first: dict[Any, int], second: dict[Any, int]) -> None:
    start = TrieMap(first)
    assert_same(start.update(second), {**first, **second})
    assert_same(start.update(list(second.items())), {**first, **second})
    assert_same(start, first)
    assert (start == TrieMap(second)) == (first == second)
    assert start.update({}) is start


@given(st.dictionaries(KEYS, st.integers(), max_size=80), st.lists(KEYS, max_size=80))
def test_a_mutation_takes_out_what_is_there(entries: dict[Any, int], keys: list[Any]) -> None:
    open_map, model = TrieMap(entries).mutate(), dict(entries)
    for key in keys:
        assert open_map.pop(key, "none") == model.pop(key, "none")
    assert_same(open_map.finish(), model)


@pytest.mark.parametrize("count", [0, 3, 16, 17, 1000])
def test_what_is_missing_is_told(count: int) -> None:
    trie = TrieMap({number: number for number in range(count)})
    assert "none" not in trie
    assert trie.get("none", 5) == 5
    with pytest.raises(KeyError):
        trie["none"]
    with pytest.raises(KeyError):
        trie.delete("none")


def test_a_change_shares_what_it_leaves() -> None:
    trie = TrieMap({number: number for number in range(10_000)})
    changed = trie.set(5, -1)
    before, after = trie._root, changed._root
    assert sum(one is not other for one, other in zip(before, after, strict=True)) == 1


def test_it_is_an_object_like_the_other_map() -> None:
    trie = TrieMap({"a": [1]})
    assert copy.deepcopy(trie) == trie
    assert weakref.ref(trie)() is trie
    assert get_origin(TrieMap[str, int]) is TrieMap
    assert TrieMap(trie) == trie
    assert trie != {"a": [1]}


def test_one_module_chooses_the_map() -> None:
    known = {ROOT / "src" / "loom" / "core" / "persistent.py"}
    paths = [path for top in ("src", "tests", "bench", "tools") for path in (ROOT / top).rglob("*.py")]
    found = {
        path for path in paths if re.search(r"^\s*(from|import) immutables\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert found == known


ENGINE = """
import sys
sys.modules["immutables"] = None
import pytest
from loom.core.persistent import Map
from loom.core.trie_map import TrieMap
assert Map is TrieMap
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_the_engine_does_the_same_on_it() -> None:
    """Replay the golden histories, which hold every state and command, and run the transcripts."""
    places = ["tests/golden/test_golden.py", "tests/scenarios", "tests/unit/core/test_reducer.py"]
    known = [place for place in places if (ROOT / place).exists()]
    assert len(known) == len(places), known
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not temporal"]
    done = subprocess.run(
        [sys.executable, "-c", ENGINE, *options, *known],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
