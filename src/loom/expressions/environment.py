"""The world of an expression: what it can ask of the run around it. Pure.

`Environment` is the port, which flows implement for their runs. `ContextEnvironment` implements it with plain data, for
`evaluate` and for tests. A method raises `FunctionError` with a sentence that names the missing thing.
"""

from __future__ import annotations

from typing import Any, Protocol

from loom.expressions.errors import FunctionError
from loom.expressions.values import find_key, kind_of


class Environment(Protocol):
    """The world of an expression: names and their values, the time, and chance, all of them data."""

    def variable(self, name: str) -> Any:
        """The value of a variable."""
        ...

    def parameter(self, name: str) -> Any:
        """The value of a parameter."""
        ...

    def app_setting(self, name: str) -> Any:
        """A setting of the host, null if there is none."""
        ...

    def action(self, name: str) -> Any:
        """The record of an action: name, status, inputs, outputs, code, error, startTime, endTime, …"""
        ...

    def outputs(self, name: str) -> Any:
        """The outputs of an action, null if it was skipped."""
        ...

    def current_action(self) -> Any:
        """The record of the action that the expression belongs to."""
        ...

    def trigger(self) -> Any:
        """The record of the trigger: name, inputs, outputs, …"""
        ...

    def item(self) -> Any:
        """The current element of the innermost loop or of the data operation."""
        ...

    def items(self, loop: str) -> Any:
        """The current element of a named loop."""
        ...

    def iteration_index(self, loop: str) -> int:
        """The number of a named loop's iteration, from 0."""
        ...

    def result(self, scope: str) -> Any:
        """The records of what is in a scope or loop."""
        ...

    def workflow(self) -> Any:
        """The record of the workflow and of its run."""
        ...

    def callback_url(self) -> str:
        """The address at which the service that is being subscribed to shall answer."""
        ...

    def agent_parameter(self, name: str) -> Any:
        """A parameter of an agent's tool."""
        ...

    def utc_now(self) -> str:
        """The time, as a timestamp with seven digits and `Z`."""
        ...

    def random_below(self, limit: int) -> int:
        """A number from 0 up to, not including, the limit: the same one whenever this run is replayed."""
        ...


_MASK = 2**64 - 1


class ContextEnvironment:
    """An environment made of a dict: `variables`, `parameters`, `actions`, `trigger`, `item`, and so on.

    It is strict: what the dict does not have is an error. Random numbers come from `seed`, so they repeat.
    """

    def __init__(self, context: dict[str, Any]) -> None:
        self._context = context
        seed = context.get("seed", 0)
        self._state: int = seed if isinstance(seed, int) else 0

    def variable(self, name: str) -> Any:
        """The value of a variable."""
        return self._named("variables", name, "variable")

    def parameter(self, name: str) -> Any:
        """The value of a parameter."""
        return self._named("parameters", name, "parameter")

    def app_setting(self, name: str) -> Any:
        """A setting of the host, null if there is none."""
        settings = self._table("appSettings")
        key = find_key(settings, name)
        return None if key is None else settings[key]

    def action(self, name: str) -> Any:
        """The record of an action."""
        return self._named("actions", name, "action")

    def outputs(self, name: str) -> Any:
        """The outputs of an action, null if it has none."""
        record = self._named("actions", name, "action")
        return record.get("outputs") if isinstance(record, dict) else None

    def current_action(self) -> Any:
        """The record of the action that the expression belongs to."""
        return self._single("action", "there is no current action here")

    def trigger(self) -> Any:
        """The record of the trigger."""
        return self._single("trigger", "there is no trigger here")

    def item(self) -> Any:
        """The current element."""
        return self._single("item", "there is no current item: this is neither in a loop nor in a data operation")

    def items(self, loop: str) -> Any:
        """The current element of a named loop."""
        return self._named("items", loop, "loop")

    def iteration_index(self, loop: str) -> int:
        """The number of a named loop's iteration."""
        index = self._named("iterationIndexes", loop, "loop")
        if isinstance(index, int):
            return index
        raise FunctionError(f"the iteration index of '{loop}' is no integer")

    def result(self, scope: str) -> Any:
        """The records of what is in a scope or loop."""
        return self._named("results", scope, "scope")

    def workflow(self) -> Any:
        """The record of the workflow and of its run."""
        return self._single("workflow", "there is no workflow here")

    def callback_url(self) -> str:
        """The address at which the service that is being subscribed to shall answer."""
        return str(self._single("callbackUrl", "there is no callback URL here: this is no webhook"))

    def agent_parameter(self, name: str) -> Any:
        """A parameter of an agent's tool."""
        return self._named("agentParameters", name, "agent parameter")

    def utc_now(self) -> str:
        """The time."""
        return str(self._single("utcNow", "there is no clock here: the context has no 'utcNow'"))

    def random_below(self, limit: int) -> int:
        """The next number of the sequence that the seed begins, below the limit."""
        bits = 0
        for _ in range(limit.bit_length() // 64 + 2):  # More bits than the limit has, so that no number is favoured.
            bits = bits << 64 | self._next()
        return bits % limit

    def _next(self) -> int:
        """Take one step of splitmix64."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        return z ^ z >> 31

    def _table(self, name: str) -> dict[str, Any]:
        table = self._context.get(name, {})
        if isinstance(table, dict):
            return table
        raise FunctionError(f"'{name}' of the context is no object but of kind {kind_of(table)}")

    def _named(self, table_name: str, name: str, what: str) -> Any:
        table = self._table(table_name)
        key = find_key(table, name)
        if key is not None:
            return table[key]
        known = ", ".join(f"'{other}'" for other in list(table)[:8])
        raise FunctionError(f"there is no {what} '{name}'; " + (f"there are: {known}" if known else "there are none"))

    def _single(self, name: str, otherwise: str) -> Any:
        if name in self._context:
            return self._context[name]
        raise FunctionError(otherwise)
