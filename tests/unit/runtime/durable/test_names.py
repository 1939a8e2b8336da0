"""Names that a store can keep, and how others are refused."""

from __future__ import annotations

import pytest

from loom.runtime.durable.names import MAX_NAME, can_be_kept, check_name, check_tags


@pytest.mark.parametrize("name", ["a", "x" * MAX_NAME, "order 17/b", "größer", "\U0001f600", "a:b"])
def test_good_names(name: str) -> None:
    check_name("A run_id", name)
    assert can_be_kept(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "A run_id must have 1 to 500 characters, not 0."),
        ("x" * (MAX_NAME + 1), "A run_id must have 1 to 500 characters, not 501."),
        ("a\0b", r"A run_id 'a\\x00b' has characters that cannot be stored."),
        ("\ud800", r"A run_id '\\ud800' has characters that cannot be stored."),
    ],
)
def test_names_that_no_store_could_keep(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_name("A run_id", name)
    assert not can_be_kept(name)


def test_name_of_another_type() -> None:
    with pytest.raises(TypeError, match=r"^A run_id must be a string, not int\.$"):
        check_name("A run_id", 17)


def test_values_of_tags_may_be_empty_but_keys_may_not() -> None:
    check_tags({"customer": ""})
    with pytest.raises(ValueError, match="The key of a tag"):
        check_tags({"": "x"})
    with pytest.raises(TypeError, match="The tag 'customer' must be a string, not int"):
        check_tags({"customer": 5})  # type: ignore[dict-item]
