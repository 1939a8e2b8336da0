"""What the operator allows a flow to ask for. Pure; may import nothing of Loom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a definition. They are part of a program's digest, so a run keeps those that it was started with."""

    max_iterations: int = 1_000
    """The highest `limit.count` of one of Loom's loops."""
    max_duration_s: float = 86_400.0
    """The longest `limit.timeout` of one of Loom's loops."""
    max_until_iterations: int = 5_000
    """The highest `limit.count` of an `Until` of Logic Apps."""

    def __post_init__(self) -> None:
        if self.max_iterations < 1 or self.max_duration_s <= 0 or self.max_until_iterations < 1:
            raise ValueError("limits must be positive: a loop runs at least once, for some time")
