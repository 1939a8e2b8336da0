"""The end of a process that used temporalio. May import the standard library.

The SDK's own threads let go of Python objects a moment after a call has been answered. If the interpreter is taken down
in this moment the process dies of it (code 134 or 139), though all its work is done. A short pause before that is
enough, and leaves the exit code, the output and whatever else is done at exit as they are.
"""

from __future__ import annotations

import atexit
import time
from functools import cache

_PAUSE_S = 0.1
"""Five times what was enough in every trial."""


@cache
def settle_at_exit() -> None:
    """Let the SDK's threads come to rest when this process ends. To be called by whoever connects; once is enough."""
    atexit.register(time.sleep, _PAUSE_S)
