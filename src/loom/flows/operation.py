"""What an action does when the walk comes to it: the face that all operations have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.retried import Resumption
    from loom.flows.state import Frame, LoopState, Record, Unfinished
    from loom.flows.walk import Walk


class Operation:
    """What an action does. It is part of the program: it knows no run and keeps nothing."""

    __slots__ = ()

    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        """The action's turn has come. It ends, now or later, by one `walk.finish`."""
        raise NotImplementedError

    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        """A block that the action had opened is over, with this status. `cause` is what made it fail."""
        raise NotImplementedError

    def resume(self, resumption: Resumption, node: Node, unfinished: Unfinished, record: Record | None) -> None:
        """The run is retried: go on inside. `record` is what the action had ended with; None: it was under way."""
        del node, record
        for inner in unfinished.frames:
            resumption.reopen(inner)

    def next_iteration(self, walk: Walk, state: LoopState, frame: Frame, node: Node) -> None:
        """Of a loop: the time for its next test has come."""
        raise NotImplementedError
