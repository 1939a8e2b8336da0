"""Server-sent events: however the bytes are cut, the messages are the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loom.client.streams import Message, Messages

TEXT = (
    ': hello\n\nid: 0\ndata: {"a": "é\u2028"}\n\nid: 4\n\n: heartbeat\r\n\r\n'
    "data:x\ndata: y\nid:7\n\nevent: z\n\nid: 9\nda"
).encode()
MESSAGES = [
    Message(None, None),
    Message("0", '{"a": "é\u2028"}'),
    Message("4", None),
    Message(None, None),
    Message("7", "x\ny"),
    Message(None, None, "z"),
]


@given(st.lists(st.integers(0, len(TEXT))))
def test_messages_do_not_depend_on_how_bytes_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    messages = Messages()
    found = [message for begin, end in pairwise(places) for message in messages.feed(TEXT[begin:end])]
    assert found == MESSAGES


def test_an_incomplete_message_is_kept_back() -> None:
    messages = Messages()
    assert list(messages.feed(b"id: 1\ndata: x\n")) == []
    assert list(messages.feed(b"\n")) == [Message("1", "x")]
