"""Chance as data: numbers that follow from the run's seed and how many were drawn before. Pure."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def draw(seed: int, number: int, limit: int) -> int:
    """The random number of this order, from 0 up to, not including, the limit (splitmix64)."""
    state = (seed + _GAMMA * (number + 1)) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    state ^= state >> 31
    # The product's upper half: no remainder, and so hardly any bias.
    return (state * limit) >> 64 if limit <= _MASK else (state * limit) // (_MASK + 1)
