"""A compiled flow: nodes in blocks, with everything worked out that does not depend on a run.

A node is one action. A block is what stands in one pair of braces: the top level, the actions of a scope, a branch, the
body of a loop. Nodes and blocks refer to each other by number. A run's state is made of these numbers too, so the same
document must give the same program everywhere and always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from loom.flows.beside import Beside
from loom.flows.connections import ConnectionUse

if TYPE_CHECKING:
    from loom.expressions import Environment
    from loom.flows.retries import Resumption
    from loom.flows.state import Frame, LoopState, Record, Unfinished
    from loom.flows.walk import Walk


Value = Callable[["Environment"], Any]
"""A compiled template: the value that it has in an environment."""

SUCCEEDED, FAILED, SKIPPED, TIMED_OUT = 1, 2, 4, 8
"""Statuses that `runAfter` can ask for, as bits."""

STATUS_BITS = {"Succeeded": SUCCEEDED, "Failed": FAILED, "Skipped": SKIPPED, "TimedOut": TIMED_OUT}


class ActionRetryPolicy(Struct, frozen=True):
    """The retry policy of an action: number of tries, delays, and failures that it is for."""

    type: Literal["none", "fixed", "exponential"]
    count: int
    interval_s: float
    min_interval_s: float
    max_interval_s: float
    azure: bool
    """True: Logic Apps' random intervals and transient failures. False: Loom's doubling with 10 % of jitter."""
    on: tuple[str, ...] | None = None
    """Status codes, error types and "timeout", in lower case; None: every failure, or Azure's transient ones."""


class RetryLimits(Struct, frozen=True):
    """The system's limits for the tries of an action. They hold whatever its policy says."""

    max_count: int
    """Tries after the first one."""
    max_duration_s: float
    """Seconds from the start of the first try to the start of the last."""


class StaticResult(Struct, frozen=True):
    """A mock in the document: the result that an action gets without doing anything."""

    status: str
    outputs: Value
    code: str = ""
    error: Any = None


class Node(Struct):
    """One action."""

    index: int
    name: str
    type: str
    """Type in lower case: `compose`, `until`, `apiconnection`."""
    path: str
    """JSON path in the document, such as `actions.Loop.actions.Check`."""
    block: int
    """Index of the block that it is in."""
    operation: Operation
    after: tuple[tuple[int, int], ...] = ()
    """Siblings that it runs after, each with the statuses that it asks for, as bits."""
    followers: tuple[int, ...] = ()
    """Siblings that run after it."""
    loops: tuple[int, ...] = ()
    """Loops around it, outermost first."""
    descendants: tuple[int, ...] = ()
    """All actions inside it, in the order of the document."""
    blocks: tuple[int, ...] = ()
    """Blocks that it owns, in the order of its operation: branches, cases, the body of a loop."""
    retry: ActionRetryPolicy | None = None
    retry_limits: RetryLimits = RetryLimits(0, 0.0)
    """Limits that hold whatever `retry` says."""
    secure_inputs: bool = False
    secure_outputs: bool = False
    """True if people may not see them: the document asks for it, or they pass on something secure."""
    static_result: StaticResult | None = None
    tracked: Value | None = None
    """The tracked properties."""
    timeout_s: Value | None = None
    """`limit.timeout` of an action that is no loop, in seconds; None: no limit."""
    calls: int = 0
    """Number of function calls in its templates."""
    connection: ConnectionUse | None = None
    """What it calls, if it calls a connection."""
    keeps_iterations: bool = False
    """True for a loop whose `result()` some expression asks for: the records of all iterations are kept."""


class Block(Struct):
    """Actions in one pair of braces, with the order that they run in."""

    index: int
    owner: int
    """The node that it belongs to; -1 for the top level."""
    nodes: tuple[int, ...] = ()
    roots: tuple[int, ...] = ()
    """Actions that start with the block, in the order of the document."""
    leaves: tuple[int, ...] = ()
    """Actions that no action runs after."""


class Parameter(Struct, frozen=True):
    """A parameter of the flow."""

    name: str
    type: str
    """Type in lower case: string, securestring, int, float, bool, array, object, secureobject; empty: any."""
    default: Any = None
    has_default: bool = False
    allowed: tuple[Any, ...] | None = None
    declared: bool = True
    """False if the document only reads it. It may still be given, as files of Standard expect, with any type."""

    is_given: bool = False
    """True if the project beside the definition gives its value, whatever a start leaves out."""

    @property
    def is_secure(self) -> bool:
        """True if its value is hidden from people."""
        return self.type.startswith("secure")


class Trigger(Struct, frozen=True):
    """A trigger: what starts runs of the flow."""

    name: str
    type: str
    """Type in lower case."""
    definition: dict[str, Any]
    schema: Any = None
    """JSON Schema of a request's body; None: there is none."""
    validates: bool = False
    """True if a body that does not fit the schema is refused."""
    recurrence: dict[str, Any] | None = None
    conditions: tuple[Value, ...] = ()
    split_on: Value | None = None
    connection: ConnectionUse | None = None
    """What it polls or subscribes to, if that is a connection."""


class Program(Struct):
    """A flow, ready to be walked."""

    name: str
    digest: str
    """SHA-256, in hex digits, of the document and the limits that it was compiled with."""
    nodes: list[Node] = []
    blocks: list[Block] = []
    """The first one is the top level."""
    by_name: dict[str, int] = {}
    """Nodes by name, and by name in lower case where the exact one is missing."""
    parameters: dict[str, Parameter] = {}
    """By name in lower case."""
    triggers: list[Trigger] = []
    outputs: dict[str, Value] = {}
    secure_outputs: bool = False
    """True if the outputs read something secure: their errors must not repeat it."""
    secure_variables: frozenset[str] = frozenset()
    """Names, in lower case, of variables that hold something secure."""
    beside: Beside | None = None
    """The names that a project gives the flow; None: there is no project beside it."""

    def find(self, name: str) -> Node | None:
        """Find an action by its exact name, else without regard to case; None if there is none."""
        index = self.by_name.get(name)
        if index is None:
            index = self.by_name.get(name.lower())
        return self.nodes[index] if index is not None else None


class Operation(Struct, frozen=True):
    """What an action does when the walk comes to it. It is part of the program: it knows no run and keeps nothing."""

    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        """Begin the action. It ends, now or later, by one `walk.finish`."""
        raise NotImplementedError

    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        """Take in the end of a block that the action had opened. `cause` is the record that made it fail, or None."""
        raise NotImplementedError

    def resume(self, resumption: Resumption, node: Node, unfinished: Unfinished, record: Record | None) -> None:
        """Go on inside the action in a retry of the run. `record` is its end before; None: it was under way."""
        del node, record
        for inner in unfinished.frames:
            resumption.reopen(inner)

    def next_iteration(self, walk: Walk, state: LoopState, frame: Frame, node: Node) -> None:
        """Begin the next test or iteration of a loop."""
        raise NotImplementedError
