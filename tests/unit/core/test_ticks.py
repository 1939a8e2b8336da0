"""Ticks and commands as stored data: every one has its own tag and is frozen."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from core_rig import A, ev

from loom.core import commands, ticks
from loom.core.reducer import _REDUCERS

TICKS = get_args(ticks.WorkflowTick)
COMMANDS = get_args(commands.WorkflowCommand)


@pytest.mark.parametrize("union", [TICKS, COMMANDS], ids=["ticks", "commands"])
def test_every_type_is_told_apart_by_its_name(union: tuple[type, ...]) -> None:
    tags = [of.__struct_config__.tag for of in union]
    assert tags == [of.__name__ for of in union]


def test_union_holds_every_tick_and_every_tick_has_its_reducer() -> None:
    defined = {v for v in vars(ticks).values() if isinstance(v, type) and issubclass(v, ticks.Tick)} - {ticks.Tick}
    assert set(TICKS) == defined
    assert set(_REDUCERS) == defined


def test_ticks_cannot_be_changed() -> None:
    tick = ticks.TickAddEvent(at=1.0, event=ev(A))
    with pytest.raises(AttributeError):
        tick.at = 2.0


def test_tick_survives_the_codec() -> None:
    tick = ticks.TickAddEvent(at=1.5, event=ev(A, n=1), source=ticks.Source("work", 1, 2, 3), more=True)
    encoded = msgspec.json.encode(tick)
    assert msgspec.json.decode(encoded, type=ticks.WorkflowTick) == tick
