"""From the declarations of steps to the config that enters a run.

May import loom.core and the declarations of loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.config import BrokerConfig, StepSpec
from loom.steps.collect import Take
from loom.steps.events import Event, HumanResponseEvent
from loom.steps.graph import catch_error_handlers, handlers_by_step, stream_bindings
from loom.steps.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.steps.step_config import StepConfig


def broker_config(workflow: str, steps: Mapping[str, StepConfig], timeout_s: float | None) -> BrokerConfig:
    """What the reducer may know of a workflow's code."""
    bindings, handlers, recoverers = stream_bindings(steps), handlers_by_step(steps), catch_error_handlers(steps)
    specs = []
    for name, config in steps.items():
        policy = config.collection_policy
        handler = recoverers.get(name)
        specs.append(
            StepSpec(
                name=name,
                accepts=_names(config.accepted_events),
                inputs=_names(t for t in config.accepted_events if _is_answer(t) or t in config.external_events),
                num_workers=config.num_workers,
                accept_subclasses=config.accept_event_subclasses,
                slots=tuple((slot, _names([kind])) for slot, kind in config.collect_params or ()),
                collects=config.collection_param is not None,
                take=policy.cardinality.n if policy is not None and isinstance(policy.cardinality, Take) else None,
                joins=bindings.get(name, ()),
                recovered_by=handlers.get(name),
                max_recoveries=handler.max_recoveries if handler is not None else 0,
            )
        )
    return BrokerConfig(workflow, tuple(specs), None if timeout_s is None else float(timeout_s))


def _names(types: Iterable[Any]) -> tuple[str, ...]:
    """Wire names without repetitions, in order."""
    found = [kind_of(cls).name for cls in types if isinstance(cls, type) and issubclass(cls, Event)]
    return tuple(dict.fromkeys(found))


def _is_answer(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, HumanResponseEvent)
