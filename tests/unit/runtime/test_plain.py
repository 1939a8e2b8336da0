"""A plain stop event reads the same without its class as with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.plain import plain_stop
from loom.steps.events import HumanResponseEvent, StopEvent

_BODIES = AnyEventCodec()
_KEYS = st.one_of(st.text(max_size=5), st.sampled_from(["__loom", "\\__loom", "__is_pydantic", "qualified_name"]))
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.datetimes()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3), st.tuples(inner)),
    max_leaves=6,
)


class Ended(StopEvent):
    pass


@given(_VALUES)
def test_what_is_read_without_the_class_is_what_the_class_gives(value: Any) -> None:
    record = _BODIES.record(StopEvent(result=value))
    fields = plain_stop(record)
    assert fields is None or repr(fields) == repr(_BODIES.event(record).model_dump(mode="json"))


@pytest.mark.parametrize("result", [None, "x", 1.5, {"a": [1, True, None]}, {"__loom": "z"}])
def test_plain_results_need_no_class(result: Any) -> None:
    event = StopEvent() if result is None else StopEvent(result=result)
    assert plain_stop(_BODIES.record(event)) == event.model_dump(mode="json")


@pytest.mark.parametrize(
    "event",
    [
        StopEvent(result=datetime(2026, 1, 1, tzinfo=UTC)),
        StopEvent(result=(1, 2)),
        StopEvent(result=float("nan")),
        StopEvent(result="x", more=1),
        Ended(),
        HumanResponseEvent(response="x"),
    ],
)
def test_everything_else_does(event: Any) -> None:
    assert plain_stop(_BODIES.record(event)) is None
