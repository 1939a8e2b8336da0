"""What servers and models answer becomes data that a store gives back as it was."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from pydantic import BaseModel

from loom.effects.actions.ai import _answered, _structured
from loom.effects.actions.content import (
    OFF_LOOP_BYTES,
    TooManyValues,
    decode_content,
    decode_content_off_loop,
    encode_content,
    parameter_of,
)
from loom.effects.actions.exchange import AnswerRefused
from loom.effects.actions.outcomes import NotPlainData, plain
from loom.effects.actions.ssrf import HttpPolicy
from loom.flows.plain import plain_value

ANSWERS: dict[str, tuple[bytes, Any]] = {
    "half of a character": (rb'{"\ud83d": "a\uD83D"}', {"\ufffd": "a\ufffd"}),
    "two halves": (rb'["\ud83d\ude00"]', ["\U0001f600"]),
    "more than 64 bits": (b"[9223372036854775807, 9223372036854775808]", [2**63 - 1, float(2**63)]),
    "more than a float": (b"[1" + b"0" * 400 + b"]", "[1" + "0" * 400 + "]"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_in_json_is_plain_data(what: str) -> None:
    sent, value = ANSWERS[what]
    assert decode_content(sent, "application/json") == value


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
        decode_content(*TOO_MANY[what], max_values=8)
    assert decode_content(*TOO_MANY[what])


def test_what_a_text_holds_is_no_value() -> None:
    assert decode_content(b'["a,b,c,d,e,f,g", "[[[[[{{{"]', "application/json", 4) == ["a,b,c,d,e,f,g", "[[[[[{{{"]


async def test_large_bodies_are_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def loads(text: str, **options: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return len(text)

    monkeypatch.setattr("json.loads", loads)
    assert await decode_content_off_loop(b" 1", "application/json") == 2
    assert await decode_content_off_loop(b" " * OFF_LOOP_BYTES + b"1", "application/json") == OFF_LOOP_BYTES + 1
    assert threads == [True, False]


CONTENT_TYPES = {
    "text/plain": "",
    "text/plain; charset=latin1": "latin1",
    "text/plain ;a=b ; CHARSET = latin1 ; c=d": "latin1",
    'text/plain; a="x; charset=no"; charset="la\\"tin1"': 'la"tin1',
    "text/plain; charset": "",
    'text/plain; charset="latin1': "latin1",
    "text/plain; charset=": "",
    "text/plain charset=latin1": "",
}


@pytest.mark.parametrize("given", CONTENT_TYPES)
def test_parameters_of_a_content_type(given: str) -> None:
    assert parameter_of(given, "charset") == CONTENT_TYPES[given]


@pytest.mark.parametrize(
    ("charset", "sent"),
    [
        ("iso-8859-1", b"\xfc"),
        ("UTF-16", b"\xfc\x00"),
        ("utf-8", "ü".encode()),
        ("us-ascii", "ü".encode()),
        ("nonsense", "ü".encode()),
    ],
)
def test_a_text_is_written_in_the_charset_that_its_type_names(charset: str, sent: bytes) -> None:
    kind = f"text/plain; charset={charset}"
    assert encode_content("ü", kind) == (sent, kind)


LONG = 400_000
TANGLED = {
    "quote": 'text/plain; a="' + ";" * LONG,
    "semicolons": "text/plain" + ";" * LONG,
    "spaces": "text/plain; " + " " * LONG + "a",
    "backslashes": 'text/plain; a="' + "\\" * LONG,
    "names": "text/plain" + "; a=1" * (LONG // 5),
}


@pytest.mark.parametrize("how", TANGLED)
def test_a_content_type_is_read_in_linear_time(how: str) -> None:
    """One with a quote that is left open took the square of its length: 35 s for 200 KB in a part of a body."""
    part = f"--b\r\nContent-Type: {TANGLED[how]}\r\n\r\nx\r\n--b--".encode()
    began = time.process_time()
    decoded = decode_content(part, "multipart/mixed; boundary=b")
    assert decoded["$multipart"][0]["body"] == "x"
    assert time.process_time() - began < 2


def test_fields_of_a_form() -> None:
    sent = b"a=1&b=x+y%20z&c&&d=%C3%A4%ff%zz=&%26=%3d"
    fields = decode_content(sent, "application/x-www-form-urlencoded")["$formdata"]
    assert [(field["key"], field["value"]) for field in fields] == parse_qsl(sent.decode(), keep_blank_values=True)


def test_escapes_of_a_form_take_no_objects() -> None:
    tracemalloc.start()
    try:
        decode_content(b"a=" + b"%41" * 300_000, "application/x-www-form-urlencoded")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000, "it was 26 MB"


@pytest.mark.parametrize("plain_of", [plain, plain_value])
def test_a_long_key_is_not_copied_for_every_element_below_it(plain_of: Callable[[Any], Any]) -> None:
    value = {"k" * 5_000_000: [0] * 50_000}
    began = time.process_time()
    assert plain_of(value) == value
    assert time.process_time() - began < 2, "it was 1.7 s with a fifth of the key"


def test_a_message_shows_the_way_to_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"^\.a\[1\]\.b is a set"):
        plain_value({"a": [0, {"b": {1}}]})
    with pytest.raises(NotPlainData, match=r"at a\[1\]\.b a set"):
        plain({"a": [0, {"b": {1}}]})


class Said(BaseModel):
    rows: list[list[int]]


@pytest.mark.parametrize("answer", [{"rows": [[]] * 300}, Said(rows=[[]] * 300), "x" * 70_000, ["x" * 999] * 70])
async def test_what_a_provider_hands_on_is_measured(answer: Any) -> None:
    policy = HttpPolicy(max_response_bytes=69_000, max_response_values=200)
    with pytest.raises(AnswerRefused, match="more than"):
        await _answered(answer, policy)
    assert (await _answered(answer, HttpPolicy())).status == "Succeeded"
