from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from loom.steps.state_store import DictState, copy_state_for_edit


class Uncopyable:
    def __deepcopy__(self, memo: dict[int, Any]) -> Uncopyable:
        raise NotImplementedError("I am a socket")


class Client(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")
    handle: Any = Field(default=None, exclude=True)
    rows: list[int] = []
    _seen: list[int] = PrivateAttr(default_factory=list)


@pytest.mark.parametrize(
    "value",
    [[[1]], {"k": [1]}, ([1],), deque([[1]], maxlen=3), Client(rows=[1]), DictState(x=[1])],
    ids=lambda value: type(value).__name__,
)
def test_data_is_copied_to_the_bottom(value: Any) -> None:
    copied = copy_state_for_edit(DictState(v=value))["v"]

    assert copied == value
    assert type(copied) is type(value)
    assert copied is not value
    _append_to_inner_list(copied)
    assert copied != value


def _append_to_inner_list(value: Any) -> None:
    if isinstance(value, Client):
        value.rows.append(2)
    else:
        (value["k"] if isinstance(value, dict) else value["x"] if isinstance(value, DictState) else value[0]).append(2)


def test_sets_are_copied_and_a_deque_keeps_its_length() -> None:
    state = DictState(s={1, 2}, f=frozenset({1}), d=deque([1], maxlen=2))
    copied = copy_state_for_edit(state)
    copied["s"].add(3)

    assert state["s"] == {1, 2}
    assert copied["f"] == frozenset({1})
    assert copied["d"].maxlen == 2


def test_excluded_fields_are_shared_wherever_the_model_is() -> None:
    handle: list[int] = []
    copied = copy_state_for_edit(DictState(deep=[{"client": Client(handle=handle)}]))

    assert copied["deep"][0]["client"].handle is handle


def test_extra_and_private_values_are_data() -> None:
    client = Client(more=[1])
    client._seen.append(1)
    copied = copy_state_for_edit(client)
    copied._seen.append(2)
    copied.more.append(2)  # type: ignore[attr-defined]

    assert client._seen == [1]
    assert client.more == [1]  # type: ignore[attr-defined]


def test_what_cannot_be_copied_is_shared_and_its_neighbours_are_not() -> None:
    live = Uncopyable()
    rows = [1]
    copied = copy_state_for_edit(DictState(live=live, both=[live, rows]))

    assert copied["live"] is live
    assert copied["both"][0] is live
    assert copied["both"][1] is not rows


def test_a_half_made_copy_is_never_found_by_a_second_reference() -> None:
    class Holder:
        def __init__(self, **parts: Any) -> None:
            self.__dict__.update(parts)

    inner = Holder(name="whole", live=Uncopyable())
    outer = Holder(inner=inner)
    copied = copy_state_for_edit(DictState(outer=outer, inner=inner))

    assert copied["inner"].name == "whole"
    assert copied["outer"] is outer


def test_cycles_and_shared_values_keep_their_shape() -> None:
    ring: list[Any] = []
    pair = (ring,)
    ring.append(pair)
    copied = copy_state_for_edit(DictState(ring=ring, again=ring))

    assert copied["ring"] is copied["again"]
    assert copied["ring"][0][0] is copied["ring"]
    assert copied["ring"] is not ring


def test_a_model_that_says_how_it_copies_is_obeyed() -> None:
    class Own(BaseModel):
        n: int = 0

        def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Own:
            return Own(n=self.n + 1)

    assert copy_state_for_edit(DictState(own=Own()))["own"].n == 1
