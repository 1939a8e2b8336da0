"""A compiled flow: nodes in blocks, with everything worked out that does not depend on a run. Pure.

A node is one action. A block is what stands in one pair of braces: the top level, the actions of a scope, a branch, the
body of a loop. Nodes and blocks know each other by their numbers, which are also what a run's state is made of, so a
program is made anew from its document in the same way everywhere and always. May import loom.expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from loom.flows.operation import Operation

if TYPE_CHECKING:
    from loom.expressions import Environment

Value = Callable[["Environment"], Any]
"""A compiled template: the value that it has in an environment."""

SUCCEEDED, FAILED, SKIPPED, TIMED_OUT = 1, 2, 4, 8
"""The statuses that `runAfter` can ask for, as bits."""

STATUS_BITS = {"Succeeded": SUCCEEDED, "Failed": FAILED, "Skipped": SKIPPED, "TimedOut": TIMED_OUT}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed action is tried again, after what delays, and after which failures."""

    type: Literal["none", "fixed", "exponential"]
    count: int
    interval_s: float
    min_interval_s: float
    max_interval_s: float
    azure: bool
    """Logic Apps' random intervals and its list of transient failures; else Loom's doubling with 10 % of jitter."""
    on: tuple[str, ...] | None = None
    """Status codes, error types and "timeout", in lower case; None: every failure, or Azure's transient ones."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """What the system allows the tries of an action, whatever its policy says."""

    max_count: int
    """Tries after the first one."""
    max_duration_s: float
    """Between the beginning of the first try and that of the last one."""


@dataclass(frozen=True, slots=True)
class StaticResult:
    """The result that an action gets instead of doing anything: a mock in the document."""

    status: str
    outputs: Value
    code: str = ""
    error: Any = None


@dataclass(slots=True)
class Node:
    """One action."""

    index: int
    name: str
    type: str
    """In lower case: `compose`, `until`, `apiconnection`."""
    path: str
    """Where it stands in the document, such as `actions.Loop.actions.Check`."""
    block: int
    """The block that it is in."""
    operation: Operation
    after: tuple[tuple[int, int], ...] = ()
    """The siblings that it runs after, each with the statuses that it asks for, as bits."""
    followers: tuple[int, ...] = ()
    """The siblings that run after it."""
    loops: tuple[int, ...] = ()
    """The loops around it, outermost first."""
    descendants: tuple[int, ...] = ()
    """All actions inside it, in the order of the document."""
    blocks: tuple[int, ...] = ()
    """The blocks that it owns, in the order of its operation: branches, cases, the body of a loop."""
    retry: RetryPolicy | None = None
    retry_limits: RetryLimits = RetryLimits(0, 0.0)
    """What holds for `retry`, whatever it says."""
    secure_inputs: bool = False
    secure_outputs: bool = False
    """Whether people may not see them: asked for in the document, or because they pass on what is secure."""
    static_result: StaticResult | None = None
    tracked: Value | None = None
    """The tracked properties."""
    timeout_s: Value | None = None
    """`limit.timeout` of an action that is no loop: seconds, or None."""
    calls: int = 0
    """How many functions its templates call."""
    keeps_iterations: bool = False
    """For a loop: some expression asks for its `result()`, so the records of all iterations are kept."""


@dataclass(slots=True)
class Block:
    """Actions side by side."""

    index: int
    owner: int
    """The node that it belongs to; -1 for the top level."""
    nodes: tuple[int, ...] = ()
    roots: tuple[int, ...] = ()
    """Those that start with the block, in the order of the document."""
    leaves: tuple[int, ...] = ()
    """Those that nobody runs after."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the flow."""

    name: str
    type: str
    """In lower case: string, securestring, int, float, bool, array, object, secureobject; empty: any."""
    default: Any = None
    has_default: bool = False
    allowed: tuple[Any, ...] | None = None
    declared: bool = True
    """Otherwise the document only reads it: it may be given, as files of Standard expect, and be of any kind."""

    @property
    def is_secure(self) -> bool:
        """Whether its value is hidden from people."""
        return self.type.startswith("secure")


@dataclass(frozen=True, slots=True)
class Trigger:
    """What starts the flow."""

    name: str
    type: str
    """In lower case."""
    definition: dict[str, Any]
    schema: Any = None
    """The JSON Schema of a request's body, if it has one."""
    validates: bool = False
    """Whether a body that the schema refuses is refused."""
    recurrence: dict[str, Any] | None = None
    conditions: tuple[Value, ...] = ()
    split_on: Value | None = None


@dataclass(slots=True)
class Program:
    """A flow, ready to be walked."""

    name: str
    digest: str
    """Of the document and the limits that it was compiled with: sha256, as hex digits."""
    nodes: list[Node] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    """The first one is the top level."""
    by_name: dict[str, int] = field(default_factory=dict)
    """Nodes by name, and by name in lower case where the exact one is missing."""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    """By name in lower case."""
    triggers: list[Trigger] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)
    secure_outputs: bool = False
    """Whether the outputs read something secure: their errors must not tell it."""
    secure_variables: frozenset[str] = frozenset()
    """Names, in lower case, of variables that hold something secure."""

    def find(self, name: str) -> Node | None:
        """An action by its name: exactly, else without case."""
        index = self.by_name.get(name)
        if index is None:
            index = self.by_name.get(name.lower())
        return self.nodes[index] if index is not None else None
