"""The code of a workflow as the engine sees it: which steps there are and what they take. Data only.

It enters a run with its first tick, so that a replay routes as the live run did. Stored as arrays: a new field goes to
the end and has a default. Pure.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from loom.core.records import Opaque


class StepSpec(msgspec.Struct, frozen=True, array_like=True):
    """One kind of work of a run and how much of it may run at a time."""

    name: str
    accepts: tuple[str, ...] = ()
    """Wire names of the event types that reach it."""
    inputs: tuple[str, ...] = ()
    """Those of them that come from outside the run, such as a person's answer."""
    num_workers: int = 4
    """Executions at the same time; 0 means no limit."""
    accept_subclasses: bool = False
    slots: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """A multi-slot join: parameter name and the types that fill it."""
    collects: bool = False
    """A `list[E]` join: it gets the members of a stream at once."""
    take: int | None = None
    """For a join: fire at this many members instead of at the end of the stream."""
    joins: tuple[str, ...] = ()
    """For a step that returns lists: the joins that its streams end in."""
    recovered_by: str | None = None
    """The recovery step that gets this step's final failures."""
    max_recoveries: int = 0
    """For a recovery step: how often it may run along one lineage of events."""


class BrokerConfig(msgspec.Struct, frozen=True, array_like=True):
    """Everything about a workflow's code that the reducer may look at."""

    workflow: str
    steps: tuple[StepSpec, ...] = ()
    timeout_s: float | None = None
    keep_unclaimed: int = 1000
    """How many early events a run keeps for waiters that are still to come."""
    program: Opaque = None
    """What another planner needs besides the steps."""


_specs: dict[int, tuple[BrokerConfig, dict[str, StepSpec]]] = {}
_CACHED_CONFIGS = 256


def specs_of(config: BrokerConfig) -> dict[str, StepSpec]:
    """The steps of a config by name.

    Remembered per config object: configs are immutable, so this is a cache of a pure function.
    """
    entry = _specs.get(id(config))
    if entry is None or entry[0] is not config:
        if len(_specs) >= _CACHED_CONFIGS:
            _specs.clear()
        entry = _specs[id(config)] = (config, {spec.name: spec for spec in config.steps})
    return entry[1]


def config_for(code: BrokerConfig, config: BrokerConfig, *, keeps_timeout: bool) -> BrokerConfig:
    """Give the config of a run that had `config` so far and goes on with this code.

    With `keeps_timeout` the author asked for no timeout: the run keeps the one that it has, or none.
    """
    return replace(code, timeout_s=config.timeout_s) if keeps_timeout else code


def num_workers(config: BrokerConfig, step: str) -> int:
    """How many executions of a step may run at a time; 0 means no limit, also for steps the config does not name."""
    spec = specs_of(config).get(step)
    return spec.num_workers if spec is not None else 0
