"""Limits of definitions: what the operator allows, and what Logic Apps would refuse.

The operator's `Limits` are binding, and part of a program's digest. The platform's limits are warned of only: a
definition may exceed them here, but will not run there.
"""

from __future__ import annotations

from msgspec import Struct

MAX_ACTIONS = 500
"""Actions of a flow."""
MAX_CASES = 25
"""Cases of a switch."""
MAX_NAME_LENGTH = 80
"""Characters of an action's name."""
MAX_NESTING = 8
"""Levels of actions inside each other."""
MAX_OUTPUTS = 10
"""Outputs of a flow."""
MAX_PARAMETERS = 50
"""Parameters of a flow."""
MAX_RETRIES = 90
"""Tries of an action after the first."""
MAX_VARIABLES = 250
"""Variables of a flow."""
MAX_WIDTH = 50
"""Iterations of a foreach that run at the same time."""


class Limits(Struct, frozen=True):
    """Bounds that the operator sets for definitions. A run keeps the limits that it was started with."""

    max_iterations: int = 1_000
    """The highest `limit.count` of one of Loom's loops."""
    max_duration_s: float = 86_400.0
    """The longest `limit.timeout` of one of Loom's loops, in seconds."""
    max_until_iterations: int = 5_000
    """The highest `limit.count` of an `Until` of Logic Apps."""
    foreach_width: int = 20
    """Iterations at a time of a `Foreach` of Logic Apps that does not say how many."""

    def __post_init__(self) -> None:
        counts = (self.max_iterations, self.max_until_iterations, self.foreach_width)
        if min(counts) < 1 or self.max_duration_s <= 0:
            raise ValueError("limits must be positive: a loop runs at least once, for some time")
