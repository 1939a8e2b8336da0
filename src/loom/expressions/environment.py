"""What an expression can ask of the run around it. Pure; may import nothing of Loom.

Every method raises `FunctionError` with a sentence that names the thing if it does not exist.
"""

from __future__ import annotations

from typing import Any, Protocol


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
        """The element at hand of the innermost loop or of the data operation."""
        ...

    def items(self, loop: str) -> Any:
        """The element at hand of a named loop."""
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
        """Where the service that is being subscribed to shall answer."""
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
