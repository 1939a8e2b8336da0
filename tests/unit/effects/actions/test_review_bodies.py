"""What servers and models answer becomes data that a store gives back as it was."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from loom.effects.actions.ai import _structured
from loom.effects.actions.bodies import OFF_LOOP_BYTES, TooManyValues, decode_body, decode_off_loop
from loom.effects.actions.ssrf import HttpPolicy

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


async def test_what_a_model_says_is_plain_data_or_text() -> None:
    assert await _structured('{"a": NaN}', HttpPolicy()) == {"content": '{"a": NaN}'}
    assert await _structured(r'{"a": "\ud83d"}', HttpPolicy()) == {"a": "\ufffd"}


LISTS = b"[[],[],[],[],[]]"
TOO_MANY = {
    "lists": (LISTS, "application/json"),
    "lists in parts": (b"--b\r\nContent-Type: application/json\r\n\r\n%b\r\n--b--" % LISTS, "multipart/a; boundary=b"),
    "parts": (b"--b\r\n\r\n\r\n" * 3 + b"--b--", "multipart/a; boundary=b"),
    "lines of a part": (b"--b\r\n" + b"a:b\r\n" * 9 + b"\r\n\r\n--b--", "multipart/a; boundary=b"),
    "fields": (b"a=1&b=2&c=3&d=4", "application/x-www-form-urlencoded"),
}


@pytest.mark.parametrize("what", TOO_MANY)
def test_values_are_counted_before_they_are_made(what: str) -> None:
    with pytest.raises(TooManyValues, match="more than 8 values"):
        decode_body(*TOO_MANY[what], max_values=8)
    assert decode_body(*TOO_MANY[what])


def test_what_a_text_holds_is_no_value() -> None:
    assert decode_body(b'["a,b,c,d,e,f,g", "[[[[[{{{"]', "application/json", 4) == ["a,b,c,d,e,f,g", "[[[[[{{{"]


async def test_large_bodies_are_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def loads(text: str, **options: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return len(text)

    monkeypatch.setattr("json.loads", loads)
    assert await decode_off_loop(b" 1", "application/json") == 2
    assert await decode_off_loop(b" " * OFF_LOOP_BYTES + b"1", "application/json") == OFF_LOOP_BYTES + 1
    assert threads == [True, False]
