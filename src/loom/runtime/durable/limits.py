"""How large a run may become. One that is larger is parked as it is, and goes on when the limit is higher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.core.ticks import TickCancelRun
from loom.effects.off_loop import weight_of
from loom.store import codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.store.records import RunRow


class Outgrown(Exception):
    """A run has become larger than allowed. What it did so far is stored; the text says what is too large."""


class Limits(msgspec.Struct, frozen=True):
    """What runs are held to."""

    state: int | None = None
    """Bytes of the state, encoded."""
    history: int | None = None
    """Ticks of the journal."""

    def excess_state(self, size: int) -> str | None:
        """Why a run with a state of this size may not go on."""
        if self.state is None or size <= self.state:
            return None
        return f"Its state has {size} bytes, and max_state allows {self.state}: it goes on when that is raised."

    def excess_values(self, *values: Any) -> str | None:
        """Tell why a run may not go on that has these values to store, found out without encoding them.

        A flow can repeat a long text many times: it is there once in memory, but as often as it is named when encoded.
        """
        return None if self.state is None else self.excess_weight(weight_of(values, self.state))

    def weigh(self, state: BrokerState) -> int:
        """Weigh the planner's part of a state: there a run grows by what it works out. It ends past the limit."""
        return 0 if self.state is None else weight_of((state.plan,), self.state)

    def excess_weight(self, weight: int) -> str | None:
        """Tell why a run may not go on that has this much to store; None if it may."""
        if self.state is None or weight <= self.state:
            return None
        return f"It has more than {self.state} bytes to store, which max_state allows: it goes on when that is raised."

    def excess_history(self, ticks: int) -> str | None:
        """Say why a run with this number of ticks may not go on; None if it may."""
        if self.history is None or ticks <= self.history:
            return None
        return f"Its history has {ticks} ticks, and max_history allows {self.history}: it goes on when that is raised."

    def still_hold(self, row: RunRow, state: BrokerState, ticks: Iterable[WorkflowTick]) -> bool:
        """Whether a parked run would only be parked again for its size. To be cancelled it is never too large."""
        if row.head.parked is None or any(isinstance(tick, TickCancelRun) for tick in ticks):
            return False
        if self.excess_history(row.head.ticks) is not None:
            return True
        return self.state is not None and self.excess_state(len(codec.encode_state(state))) is not None
