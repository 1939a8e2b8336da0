"""Budgets: what an action may cost, and what a burst of actions may cost before the walk yields.

The number of a run's rules says whether budgets hold for it (`loom.flows.rules`). The meter counts for older runs too,
because the driver's patience is measured in the same units, but refuses them nothing.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from typing_extensions import override

from loom.core.run import TooCostly, bear, patience
from loom.expressions.metering import CALL, MAX_BYTES, MAX_UNITS, Meter
from loom.flows.rules import ACTIONS_HAVE_BUDGETS

if TYPE_CHECKING:
    from loom.flows.program import Node

BURST_UNITS = 2 * 1024 * 1024
"""Units after which a burst of the walk yields, between two actions: about 20 ms."""
BURST_BYTES = 32 * 1024 * 1024
"""Bytes after which it yields."""
STEP = 512
"""Units that the driver's patience is charged for each action that the walk enters, whatever its templates cost."""
OVER_BUDGET = "ActionBudgetExceeded"
"""The code of an action that costs more than an action may."""


class BurstMeter(Meter):
    """Counts the cost of one action after the other, and of all of them together."""

    __slots__ = ("_patience", "burst_bytes", "burst_units", "counts")

    def __init__(self, rules: int) -> None:
        self.counts = rules >= ACTIONS_HAVE_BUDGETS
        super().__init__(MAX_UNITS if self.counts else inf, MAX_BYTES if self.counts else inf)
        self.burst_units = self.burst_bytes = 0
        self._patience = patience()

    def begin(self, node: Node) -> None:
        """Count for another action from here on: first the calls in its templates."""
        self.end()
        self.is_over = False
        if self._patience is not None:
            bear(STEP)
            self.most_units = min(self._patience.left, MAX_UNITS if self.counts else inf)
        if node.calls:
            self.units = node.calls * CALL

    def end(self) -> None:
        """Add what the action has cost to the burst and to what the driver has borne."""
        self.burst_units += self.units
        self.burst_bytes += self.bytes
        if self._patience is not None:
            self._patience.left -= self.units
        self.units = self.bytes = 0

    @property
    def is_spent(self) -> bool:
        """True if the walk should yield before the next action."""
        units, size = self.burst_units + self.units, self.burst_bytes + self.bytes
        return self.counts and (units > BURST_UNITS or size > BURST_BYTES)

    @override
    def exceed(self) -> None:
        if (
            self._patience is not None
            and not (self.counts and self.units > MAX_UNITS)
            and self.bytes <= self.most_bytes
        ):
            raise TooCostly
        super().exceed()
