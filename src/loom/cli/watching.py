"""What `--watch` does: look at runs again and again, and draw what is found in the same place.

May import rich, and the errors of stores.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from loom.cli.shown import console
from loom.store.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.cli.shown import Page
    from loom.cli.sources import Runs

    Look = Callable[[Runs], Awaitable[tuple[Page, bool]]]
    """What there is to see, and whether that is the end of it."""

INTERVAL_S = 1.0
PATIENCE_S = 30.0
"""A server may be started anew meanwhile, or a database."""


async def watched(runs: Runs, look: Look) -> None:
    """Draw what there is until the end of it, or until Ctrl-C. What was last seen stays. Elsewhere, print each look."""
    from rich.live import Live

    screen = console()
    # What does not fit is cut, so that it can be drawn over; the last one is shown whole.
    with Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as region:
        seen_at: float | None = None
        while True:
            try:
                page, is_last = await look(runs)
            except StoreUnavailable:
                if seen_at is None or time.monotonic() > seen_at + PATIENCE_S:
                    raise
                await asyncio.sleep(INTERVAL_S)
                continue
            seen_at = time.monotonic()
            if screen.is_terminal:
                region.update(page.drawn(screen.width), refresh=True)
            else:
                page.print()
            if is_last:
                return
            await asyncio.sleep(INTERVAL_S)
