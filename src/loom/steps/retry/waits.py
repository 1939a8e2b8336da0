# The names of classes and parameters are the public API that Loom keeps.
# ruff: noqa: A002, N801
"""Wait strategies: how long to pause before retry `n`, counted from 0. They add up with `+` and `sum()`.

May import `checks` only; `random` is the one source of chance here, and a seed decides it.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from typing_extensions import override

from loom.steps.retry.checks import Described, factor, ordered, parts, seconds, time_unit_type


class WaitStrategy(Protocol):
    """Computes the delay before a retry; the first retry has `attempts` 0."""

    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds; the same seed gives the same delay."""
        ...


class _Wait(Described):
    """Base of the built-in strategies: `a + b` waits for both, and so does `sum([a, b])`."""

    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        raise NotImplementedError

    def __add__(self, other: WaitStrategy) -> wait_combine:
        return wait_combine(self, other)

    def __radd__(self, other: Any) -> Any:
        # sum() starts with 0.
        return self if other == 0 else wait_combine(other, self)


class wait_fixed(_Wait):
    """Wait the same time before every retry."""

    def __init__(self, wait: time_unit_type) -> None:
        self.wait = seconds("wait_fixed", "wait", wait)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return self.wait


class wait_none(wait_fixed):
    """Retry at once."""

    def __init__(self) -> None:
        super().__init__(0)


class wait_exponential(_Wait):
    """Wait `multiplier * exp_base ** n`, at least `min` and at most `max`."""

    def __init__(
        self,
        multiplier: float = 1.0,
        exp_base: float = 2.0,
        max: time_unit_type = 60.0,
        min: time_unit_type = 0.0,
    ) -> None:
        owner = type(self).__name__
        self.multiplier = factor(owner, "multiplier", multiplier)
        self.exp_base = factor(owner, "exp_base", exp_base)
        self.max = seconds(owner, "max", max, finite=False)
        self.min = seconds(owner, "min", min)
        ordered(owner, self.min, self.max)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return max(self.min, min(_power(self.multiplier, self.exp_base, attempts), self.max))


class wait_random_exponential(wait_exponential):
    """Wait a random time between `min` and what `wait_exponential` would wait ("full jitter")."""

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return _uniform(seed, self.min, super().__call__(attempts))


def wait_full_jitter(
    multiplier: float = 1.0,
    exp_base: float = 2.0,
    max: time_unit_type = 60.0,
    min: time_unit_type = 0.0,
) -> wait_random_exponential:
    """Return `wait_random_exponential` under its other name."""
    return wait_random_exponential(multiplier=multiplier, exp_base=exp_base, max=max, min=min)


class wait_exponential_jitter(_Wait):
    """Wait `initial * exp_base ** n` plus a random time up to `jitter`, in all at most `max`."""

    def __init__(
        self,
        initial: time_unit_type = 1.0,
        exp_base: float = 2.0,
        max: time_unit_type = 60.0,
        jitter: time_unit_type = 1.0,
    ) -> None:
        owner = "wait_exponential_jitter"
        self.initial = seconds(owner, "initial", initial)
        self.exp_base = factor(owner, "exp_base", exp_base)
        self.max = seconds(owner, "max", max, finite=False)
        self.jitter = seconds(owner, "jitter", jitter)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        base = min(_power(self.initial, self.exp_base, attempts), self.max)
        return min(base + _uniform(seed, 0.0, self.jitter), self.max)


class wait_incrementing(_Wait):
    """Wait `start + increment * n`, never below 0 and at most `max`; a negative increment shortens the waits."""

    def __init__(
        self,
        start: time_unit_type = 0.0,
        increment: time_unit_type = 100.0,
        max: time_unit_type = float("inf"),
    ) -> None:
        owner = "wait_incrementing"
        self.start = seconds(owner, "start", start, negative=True)
        self.increment = seconds(owner, "increment", increment, negative=True)
        self.max = seconds(owner, "max", max, finite=False)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return max(0.0, min(self.start + self.increment * attempts, self.max))


class wait_random(_Wait):
    """Wait a random time between `min` and `max`."""

    def __init__(self, min: time_unit_type = 0.0, max: time_unit_type = 1.0) -> None:
        self.min = seconds("wait_random", "min", min)
        self.max = seconds("wait_random", "max", max)
        ordered("wait_random", self.min, self.max)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return _uniform(seed, self.min, self.max)


class wait_chain(_Wait):
    """Use the n-th strategy for retry `n`, and the last one from then on."""

    def __init__(self, *strategies: WaitStrategy) -> None:
        if not strategies:
            raise ValueError("wait_chain requires at least one strategy")
        parts("wait_chain", "a strategy", strategies)
        self.strategies = strategies

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return self.strategies[min(attempts, len(self.strategies) - 1)](attempts, seed=seed)


class wait_combine(_Wait):
    """Wait the sum of all strategies."""

    def __init__(self, *strategies: WaitStrategy) -> None:
        parts("wait_combine", "a strategy", strategies)
        self.strategies = strategies

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return sum((strategy(attempts, seed=seed) for strategy in self.strategies), 0.0)


def _power(base: float, exp_base: float, attempts: int) -> float:
    """Return `base * exp_base ** attempts`; what no float can hold is infinite, so that a maximum still applies."""
    if base == 0:
        return 0.0
    try:
        return base * exp_base**attempts
    except OverflowError:
        return float("inf")


def _uniform(seed: int | None, low: float, high: float) -> float:
    """Draw from a generator of its own: without a seed it seeds itself."""
    return random.Random(seed).uniform(low, high)  # noqa: S311 - jitter is no secret
