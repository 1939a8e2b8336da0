"""What is cut out of stored data and comes back byte for byte, and what payloads are called."""

from __future__ import annotations

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.store import codec
from loom.store.errors import CorruptRecord
from loom.store.payloads import MAGIC, Names, cut, references_in, whole
from loom.store.sqlite.connection import explained

NAMES = Names()
_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=40) | st.sampled_from(['"' * 9, "\\" * 9, '\\"é' * 9, "x" * 30]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES, st.booleans(), st.integers(2, 60))
def test_whole_data_comes_back_byte_for_byte(value: object, ascii_only: bool, above: int) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    made = cut(data, above, NAMES)
    assert whole(made.data, made.payloads) == data
    assert all(len(text) > above and json.loads(text) is not None for text in made.payloads.values())
    assert len(references_in(made.data)) >= len(made.payloads)
    if not made.payloads:
        assert made.data == data


def test_only_large_texts_are_cut_and_each_is_kept_once() -> None:
    large = "x" * 100
    made = cut(json.dumps([large, "small", {"again": large}]).encode(), 50, NAMES)
    assert [reference.size for reference in references_in(made.data)] == [102, 102]
    assert list(made.payloads.values()) == [json.dumps(large).encode()]
    assert large.encode() not in made.data
    assert b"small" in made.data


def test_data_without_a_large_text_stays_as_it_is() -> None:
    data = json.dumps(["x" * 40] * 40).encode()
    assert cut(data, 50, NAMES) == (data, {})


def test_a_name_with_a_key_tells_nothing_to_those_without() -> None:
    one, other, none = Names(b"1" * 32), Names(b"2" * 32), Names()
    assert len({names.of(b"x") for names in (one, other, none)}) == 3
    assert none.fits(none.of(b"x"), b"x")
    assert not none.fits(none.of(b"x"), b"y")
    assert none.fits(one.of(b"x"), b"x"), "its seal is checked instead"


def test_a_reader_that_knows_no_place_is_told_what_to_name() -> None:
    with pytest.raises(CorruptRecord, match=r"payloads beside the store.*LOOM_PAYLOADS"):
        codec.decode_start("r", MAGIC + b"[]\n")


def test_what_sqlite_refuses_as_too_big_names_the_option() -> None:
    error = explained(sqlite3.DataError("string or blob too big"), "runs.db")
    assert "`payloads` of loom.connect" in str(error)
    assert "payloads" not in str(explained(sqlite3.DataError("another"), "runs.db"))
