"""What servers and models answer becomes data that a store gives back as it was."""

from __future__ import annotations

from typing import Any

import pytest

from loom.effects.actions.ai import _structured
from loom.effects.actions.bodies import decode_body

ANSWERS: dict[str, tuple[bytes, Any]] = {
    "half of a character": (rb'{"\ud83d": "a\uD83D"}', {"\ufffd": "a\ufffd"}),
    "two halves": (rb'["\ud83d\ude00"]', ["\U0001f600"]),
    "more than 64 bits": (b"[9223372036854775807, 9223372036854775808]", [2**63 - 1, float(2**63)]),
    "more than a float": (b"[1" + b"0" * 400 + b"]", "[1" + "0" * 400 + "]"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_in_json_is_plain_data(what: str) -> None:
    sent, value = ANSWERS[what]
    assert decode_body(sent, "application/json") == value


def test_what_a_model_says_is_plain_data_or_text() -> None:
    assert _structured('{"a": NaN}') == {"content": '{"a": NaN}'}
    assert _structured(r'{"a": "\ud83d"}') == {"a": "\ufffd"}
