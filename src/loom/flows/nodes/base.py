"""What several families of operations need. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.flows.records import outputs_in

if TYPE_CHECKING:
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


def outputs_by_name(walk: Walk, inner: Frame) -> dict[str, object]:
    """The outputs of a block's actions by their names, of those that have run."""
    records = inner.records if inner.scope == inner.id else walk.frames[inner.scope].records
    return outputs_in(walk.program, inner.block, records)
