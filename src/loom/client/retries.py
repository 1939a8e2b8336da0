"""How often, and after how long, something is tried again. May import the standard library and msgspec."""

from __future__ import annotations

from random import SystemRandom

import msgspec

_chance = SystemRandom()


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """When to try again after a broken connection, or when the server asks for patience. Times are seconds."""

    attempts: int = 4
    """How often a request is made at most."""
    stream_attempts: int = 12
    """How often a stream that brings nothing is opened in a row, at most."""
    first_delay: float = 0.1
    max_delay: float = 5.0
    patience: float = 60.0
    """If the server asks for more than that, the caller is told at once."""

    def delay(self, failures: int) -> float:
        """How long to wait after so many failures in a row. Spread, so that many clients do not come back at once."""
        longest = min(self.max_delay, self.first_delay * 2 ** min(failures - 1, 30))
        return _chance.uniform(longest / 2, longest)


NEVER = Retries(attempts=1, stream_attempts=1)
"""Each request is made once."""
