"""What is known about a step before it runs: plain declarations that routing, validation and drawing read.

`Collect` is the part of a declaration that authors write themselves, in the annotation of a `list[E]` parameter:

    async def fastest(self, evs: Annotated[list[Answer], Collect(Take(1))]) -> StopEvent: ...

A bare `list[E]` means `Collect(All())`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from pydantic import BaseModel  # noqa: TC004

    from loom.steps.resources import ResourceDefinition  # noqa: TC004
    from loom.steps.retry import RetryPolicy  # noqa: TC004


WorkflowGraphCheck = Literal["reachability", "terminal_event", "dead_end"]
StepGraphCheck = Literal["reachability", "dead_end"]
StepRole = Literal["step", "catch_error", "on_cancel"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class StepConfig(Struct):
    """The declaration of one step, read from its signature and from its decorator."""

    accepted_events: list[Any]
    """Every event type that is routed to the step."""
    event_name: str
    """The parameter that takes the event; of several, the first."""
    return_types: list[Any]
    """What the step may return, unions and lists taken apart; `[NoneType]` for `-> None`."""
    context_parameter: str | None
    num_workers: int
    retry_policy: RetryPolicy | None
    resources: list[ResourceDefinition]
    context_state_type: type[BaseModel] | None = None
    skip_graph_checks: list[StepGraphCheck] = []
    collect_params: list[tuple[str, Any]] | None = None
    """The slots of a join `(a: A, b: B)` in the order of declaration."""
    is_fan_out: bool = False
    """The step may return a list, which opens a stream."""
    bare_return_types: tuple[Any, ...] = ()
    """What a step may return without a list around it: `B` in `-> list[A] | B`."""
    collection_param: tuple[str, tuple[Any, ...]] | None = None
    """The `list[E]` parameter and its element types."""
    collection_policy: Collect | None = None
    """How the `list[E]` parameter collects; set exactly when `collection_param` is."""
    role: StepRole = "step"
    catch_error_for_steps: list[str] | None = None
    """The steps that a handler covers; None means all that no other handler names."""
    catch_error_max_recoveries: int = 1
    accept_event_subclasses: bool = False
    timeout: float | None = None
    """Seconds that one execution may take; None means no limit of its own."""
    external_events: tuple[Any, ...] = ()
    """Event types that callers from outside may send, because the step takes them or its body waits for them."""
    cleanup_timeout: float = 0.0
    """For a clean-up step: seconds that all of its attempts may take together."""
    pure: bool = False
    """Whether the body has no effect outside, and may run again with other inputs: a store starts it before its commit
    is durable."""


class CatchErrorHandler(Struct, frozen=True):
    """A `@catch_error` handler as failures are routed to it."""

    step_name: str
    for_steps: list[str] | None
    max_recoveries: int


class StepFunction(Protocol, Generic[P, R_co]):
    """A function that a decorator made a step; it carries its `StepConfig`."""

    _step_config: StepConfig
    __name__: str
    __qualname__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the body as the plain function that it still is."""
        ...


def is_count(value: object) -> bool:
    """Return whether a value is a count: an integer from 1 on, and not a bool, which Python takes for an integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class Cardinality(Struct, frozen=True):
    """When a collecting step fires and with which members; use `All` or `Take`."""


class All(Cardinality, frozen=True):
    """Fires when all work of the stream is settled, with every member that arrived."""


class Take(Cardinality, frozen=True):
    """Fires at the n-th arrival with the first `n` members, or at the stream's end with fewer.

    The other branches of the stream run on; what they bring is dropped.
    """

    n: int

    def __post_init__(self) -> None:
        """Refuse what can never be counted to."""
        if not is_count(self.n):
            raise ValueError("Take(n) requires an integer n >= 1")


class Collect(Struct, frozen=True):
    """Marks a `list[E]` parameter and says how its stream is collected."""

    cardinality: Cardinality = All()
