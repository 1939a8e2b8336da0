"""What a case of the benchmark is: its size, what it measures, who takes part, and what Loom has to reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

LOOM = "loom"

Figures = dict[str, float]
"""One sample: a number per metric."""
Medians = Mapping[str, Figures]
"""The medians of a case, by peer."""


@dataclass(frozen=True)
class Metric:
    """One number that a case measures."""

    key: str
    unit: str
    more_is_better: bool = False

    def heading(self) -> str:
        """Return the unit and how to read it."""
        return f"{self.unit} ({'more' if self.more_is_better else 'less'} is better)"


@dataclass(frozen=True)
class Target:
    """What Loom has to reach. A guide is an absolute figure, which depends on the machine; ratios bind."""

    text: str
    value: Callable[[Medians], float]
    at_most: float | None = None
    at_least: float | None = None
    guide: bool = False

    def reached(self, value: float) -> bool:
        """Say whether the value is within the limits."""
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)


@dataclass(frozen=True)
class Case:
    """A case: each peer is a function that takes the size, does the work once, and returns its figures."""

    name: str
    title: str
    order: int
    size: int
    metrics: tuple[Metric, ...]
    peers: Mapping[str, Callable[[int], Figures]]
    targets: tuple[Target, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the peers that take another one than `size`."""
    warm_up: int = 50
    """The size of a first run in the same process, which is not measured; 0 for none."""
    preparation_s: float = 0.0
    """Seconds that a sample may need beside what it measures: to start a server, or to make a long history."""
    full_size: int = 0
    """The size with `--full`, for a case that is cut short without it; 0 for none."""

    def whole(self) -> Case:
        """Return the case at its full size, with so many more seconds for a sample."""
        if not self.full_size:
            return self
        longer = self.preparation_s * self.full_size / self.size
        return replace(self, size=self.full_size, preparation_s=longer)


def absolute(
    text: str, key: str, *, at_most: float | None = None, at_least: float | None = None, peer: str = LOOM
) -> Target:
    """Return a guide: a figure of Loom by itself."""
    return Target(text, lambda medians: medians[peer][key], at_most=at_most, at_least=at_least, guide=True)


def faster_than(peer: str, key: str, times: float) -> Target:
    """Return a binding target: the peer needs at least so many times what Loom needs."""
    return Target(
        f"at least {times:g}x faster than {peer}",
        lambda medians: medians[peer][key] / medians[LOOM][key],
        at_least=times,
    )


def within(peer: str, key: str, times: float) -> Target:
    """Return a binding target: Loom needs at most so many times what the peer needs."""
    return Target(
        f"at most {times:g}x of {peer}",
        lambda medians: medians[LOOM][key] / medians[peer][key],
        at_most=times,
    )
