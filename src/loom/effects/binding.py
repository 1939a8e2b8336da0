"""A step of a workflow, ready to be called: what its body wants and how it is run.

That is worked out once per workflow instance, so that a dispatch costs little. `loom.effects.actions.binding` has the
counterpart of flows.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from typing import TYPE_CHECKING, Any

from loom.core.records import Release
from loom.effects.event_codec import LIVE_CODEC, UnfitEventError
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import Event
from loom.steps.ports import current_execution
from loom.steps.registry import known_kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.core.records import EventRecord
    from loom.core.state import WorkItem
    from loom.effects.event_codec import EventCodec
    from loom.effects.ports import Binding
    from loom.steps.resources import ResourceManager
    from loom.steps.step_config import StepConfig
    from loom.steps.workflow import StepsDefinition


_log = logging.getLogger("loom.run")


_warned: set[tuple[str, str]] = set()
"""Steps, with the types that they returned without declaring them: each is logged once by this process."""


class StepBinding:
    """A step of one workflow instance."""

    __slots__ = (
        "_declared", "codec", "config", "context_name", "event_name", "function", "is_async", "is_plain", "joins",
        "name", "resources", "retry_policy", "uses_ending_resources",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        config: StepConfig,
        resources: ResourceManager | None,
        codec: EventCodec = LIVE_CODEC,
    ) -> None:
        self.name = name
        self.function = function
        self.config = config
        self.resources = resources
        self.codec = codec
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(function)
        self.event_name = config.event_name
        self.context_name = config.context_parameter
        self.retry_policy = config.retry_policy
        self.joins = config.collection_param is not None
        self.uses_ending_resources: bool | None = None
        """Whether the step has a resource that is torn down; None until its first execution."""
        self._declared: set[Any] = set(config.return_types)
        """The types that the step may return, and the subclasses of them that it has returned."""
        self.is_plain = self.is_async and not config.resources and config.timeout is None

    def arguments(self, item: WorkItem) -> dict[str, Any]:
        """The events for a body, by parameter."""
        if self.joins:
            return {self.event_name: members_of(item.event, self.codec)}
        if item.extra is not None and item.extra.bound:
            return self._bound(item.extra.bound)
        return {self.event_name: self.codec.event(item.event)}

    def _bound(self, bound: tuple[tuple[str, EventRecord], ...]) -> dict[str, Any]:
        """Read the events of a step that takes several. All that do not fit are found together: the others wait on."""
        events: dict[str, Any] = {}
        unfit: list[UnfitEventError] = []
        for name, record in bound:
            try:
                events[name] = self.codec.event(record)
            except UnfitEventError as error:
                if error.record.checked is not False:
                    raise
                unfit.append(UnfitEventError(error.record, error.reason, (name,)))
        if unfit:
            names = tuple(name for error in unfit for name in error.parameters)
            raise UnfitEventError(unfit[0].record, unfit[0].reason, names)
        return events

    def call(self, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Run the body: on the loop if it is async, else in a thread that shares its context variables."""
        if self.is_plain:
            body: Awaitable[Any] = self.function(**arguments)
            return body
        return self._prepare_and_run(arguments)

    async def _prepare_and_run(self, arguments: dict[str, Any]) -> Any:
        if self.config.resources and self.resources is not None:
            if self.uses_ending_resources is None:
                from loom.steps.resources import has_end

                self.uses_ending_resources = any(has_end(each.resource) for each in self.config.resources)
            if self.uses_ending_resources:
                return await self._run_with_resources(arguments, self.resources)
            arguments.update(await self.resources.resolve_all(self.config.resources))
        return await self._run_in_time(arguments)

    async def _run_with_resources(self, arguments: dict[str, Any], resources: ResourceManager) -> Any:
        """Run the body with values that are torn down: after the execution, or not while it uses them."""
        execution: Any = current_execution()
        use = resources.for_execution(getattr(execution, "host", None))
        try:
            arguments.update(await use.values(self.config.resources))
            return await self._run_in_time(arguments)
        finally:
            await use.end()

    async def _run_in_time(self, arguments: dict[str, Any]) -> Any:
        if self.config.timeout is not None:
            async with asyncio.timeout(self.config.timeout):
                return await self._run(arguments)
        return await self._run(arguments)

    async def _run(self, arguments: dict[str, Any]) -> Any:
        if self.is_async:
            return await self.function(**arguments)
        context = contextvars.copy_context()
        result = await asyncio.get_running_loop().run_in_executor(None, lambda: context.run(self._body, arguments))
        return await result if inspect.isawaitable(result) else result

    def _body(self, arguments: dict[str, Any]) -> Any:
        """The body of a sync step, in its thread."""
        try:
            return self.function(**arguments)
        except (StopIteration, GeneratorExit) as error:
            # A future cannot carry them: who awaits the thread would wait for ever, or be closed.
            raise RuntimeError(f"Step function {self.name} raised {type(error).__name__}") from error

    def classify(self, result: Any) -> tuple[tuple[EventRecord, ...], bool]:
        """Turn what a body returned into records; returns them, and whether they open a stream."""
        if result is None:
            return (), False
        config = self.config
        if known_kind(type(result)) is not None or isinstance(result, Event):
            if config.is_fan_out and type(result) not in config.bare_return_types:
                raise WorkflowRuntimeError(
                    f"Step function {self.name} returned a bare {type(result).__name__}, but is annotated to return a "
                    f"list: return [{type(result).__name__}(...)] or add the type to the annotation."
                )
            if type(result) not in self._declared:
                self._check_declared(type(result))
            return (self.codec.record(result),), False
        if isinstance(result, list) and config.is_fan_out:
            for position, member in enumerate(result):
                if not isinstance(member, Event):
                    raise WorkflowRuntimeError(
                        f"Step function {self.name} returned {type(member).__name__} instead of an Event instance, "
                        f"at position {position} of its list."
                    )
            for kind in {type(member) for member in result} - self._declared:
                self._check_declared(kind)
            return tuple([self.codec.record(member) for member in result]), True
        raise WorkflowRuntimeError(
            f"Step function {self.name} returned {type(result).__name__} instead of an Event instance."
        )

    def _check_declared(self, kind: type[Any]) -> None:
        """Warn once if a step returned an event of a type that its annotation does not name.

        The graph of the workflow was checked by the annotations: nobody knows whether a step takes such an event.
        """
        declared = [each for each in self.config.return_types if isinstance(each, type) and each is not Any]
        if len(declared) < len(self.config.return_types) or issubclass(kind, tuple(declared)):
            self._declared.add(kind)
            return
        step = f"{self.function.__module__}.{self.function.__qualname__}"
        if (step, kind.__name__) not in _warned:
            _warned.add((step, kind.__name__))
            names = " | ".join("None" if each is type(None) else each.__name__ for each in declared)
            _log.warning(
                "Step %r returned %s, but is annotated to return %s. If no step takes it, the run gets stuck.",
                self.name, kind.__name__, names,
            )  # fmt: skip


def members_of(record: EventRecord, codec: EventCodec = LIVE_CODEC) -> list[Event]:
    """The events that a join was fired with."""
    release = record.body
    if not isinstance(release, Release):
        raise TypeError(f"A join is fired with a set of events, not with {record.kind.name}.")
    return [codec.event(member) for member in release.members]


def step_bindings(definition: StepsDefinition, codec: EventCodec) -> dict[str, Binding]:
    """Bind all steps of a workflow, by name, for runs that keep their events like this."""
    # Most workflows inject nothing; then the room of resources is not even imported.
    injects = any(function._step_config.resources for function in definition.functions.values())
    resources = definition.resources if injects else None
    return {
        name: StepBinding(name, function, function._step_config, resources, codec)
        for name, function in definition.functions.items()
    }
