"""Which inputs, outputs and variables people may not see. Pure.

The document hides some; whatever merely passes those on is hidden too. That is worked out until nothing more follows:
an action whose expressions read something hidden has hidden inputs; if its outputs are made of its inputs, those are
hidden as well; a variable that was given something hidden is hidden; a container whose actions have hidden outputs has
hidden outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.flows.references import ACTION_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.flows.lowering.context import Lowering, Reference
    from loom.flows.program import Node, Program

_PASSES_ON = frozenset(
    {
        "compose",
        "parsejson",
        "select",
        "query",
        "join",
        "table",
        "expression",
        "initializevariable",
        "setvariable",
        "incrementvariable",
        "decrementvariable",
        "appendtoarrayvariable",
        "appendtostringvariable",
        "response",
        "terminate",
    }
)
"""Types whose outputs are made of their inputs."""

_GATHERS = frozenset({"foreach", "until", "while", "dountil", "parallel", "retry", "switch"})
"""Types whose outputs are made of those of the actions in them."""

_TRIGGER_FUNCTIONS = frozenset(
    {"trigger", "triggers", "triggerbody", "triggeroutputs", "triggerformdatavalue", "triggerformdatamultivalues"}
    | {"triggermultipartbody"}
)
_WHOLE_RECORDS = frozenset({"actions", "action", "result"})
"""Functions that give inputs as well as outputs."""


def mark_secure(low: Lowering, program: Program) -> None:
    """Mark nodes and variables; what is hidden has no tracked properties."""
    secrets = _Secrets(low, program)
    while secrets.spread():
        pass
    program.secure_variables = frozenset(secrets.variables)
    program.secure_outputs = secrets.in_outputs()
    for node in program.nodes:
        if node.secure_inputs or node.secure_outputs:
            node.tracked = None


class _Secrets:
    """What is known to be hidden so far."""

    def __init__(self, low: Lowering, program: Program) -> None:
        self.program = program
        self.variables: set[str] = set()
        self._references: dict[int, list[Reference]] = {}
        for reference in low.references:
            self._references.setdefault(reference.owner, []).append(reference)
        self._assigned = _assigned(low)
        self._parameters = {name for name, parameter in program.parameters.items() if parameter.is_secure}
        self._trigger = any(_hides_outputs(trigger.definition) for trigger in program.triggers)

    def in_outputs(self) -> bool:
        """Whether what belongs to no action, as the flow's outputs do, reads something hidden."""
        return any(self._is_secret(None, reference) for reference in self._references.get(-1, ()))

    def spread(self) -> bool:
        """One round; whether it has found more."""
        before = self._size()
        for node in self.program.nodes:
            self._look_at(node)
        return self._size() > before

    def _size(self) -> int:
        return len(self.variables) + sum(node.secure_inputs + node.secure_outputs for node in self.program.nodes)

    def _look_at(self, node: Node) -> None:
        references = self._references.get(node.index, ())
        if not node.secure_inputs:
            node.secure_inputs = any(self._is_secret(node, reference) for reference in references)
        if not node.secure_outputs:
            passed_on = node.secure_inputs and (node.type in _PASSES_ON or node.static_result is not None)
            gathered = node.type in _GATHERS and self._any_outputs(node.descendants)
            node.secure_outputs = passed_on or gathered
        if node.secure_inputs:
            self.variables.update(self._assigned.get(node.index, ()))

    def _any_outputs(self, indexes: Iterable[int]) -> bool:
        return any(self.program.nodes[index].secure_outputs for index in indexes)

    def _is_secret(self, node: Node | None, reference: Reference) -> bool:
        function, name = reference.function, reference.name
        if function == "parameters":
            return _named(name, self._parameters)
        if function == "variables":
            return _named(name, self.variables) or (node is not None and self._loop_variable(node, name))
        if function in _TRIGGER_FUNCTIONS:
            return self._trigger
        if function == "item":
            return node is not None and self._item(node)
        if function == "items":
            return self._element(name)
        return function in ACTION_FUNCTIONS and self._action(function, name)

    def _action(self, function: str, name: str | None) -> bool:
        if function == "iterationindexes":
            return False
        named = self.program.find(name) if name is not None else None
        if name is not None and named is None:
            return False
        nodes = [named] if named is not None else self.program.nodes
        if function == "result":
            nodes = [self.program.nodes[index] for node in nodes for index in (node.index, *node.descendants)]
        whole = function in _WHOLE_RECORDS
        return any(node.secure_outputs or (whole and node.secure_inputs) for node in nodes)

    def _element(self, loop: str | None) -> bool:
        named = self.program.find(loop) if loop is not None else None
        return named is not None and named.secure_inputs

    def _item(self, node: Node) -> bool:
        loops = (self.program.nodes[index] for index in node.loops)
        return any(loop.secure_inputs for loop in loops if loop.type == "foreach")

    def _loop_variable(self, node: Node, name: str | None) -> bool:
        if name is None:
            return False
        key = name.lower()
        if key == "item":
            return self._item(node)
        return key.endswith("loopresult") and self._any_outputs((*node.loops, *node.descendants))


def _named(name: str | None, secrets: set[str]) -> bool:
    """Whether that is one of them; a name that is only known in the run may be any of them."""
    return bool(secrets) if name is None else name.lower() in secrets


def _assigned(low: Lowering) -> dict[int, list[str]]:
    assigned: dict[int, list[str]] = {}
    for index, part in low.assigned:
        # Which variable an expression names is only known in the run, so it may be any.
        names = [part.value.lower()] if "@" not in part.value else low.variables
        assigned.setdefault(index, []).extend(names)
    return assigned


def _hides_outputs(trigger: dict[str, object]) -> bool:
    found: object = trigger
    for key in ("runtimeConfiguration", "secureData", "properties"):
        found = found.get(key) if isinstance(found, dict) else None
    return isinstance(found, list) and "outputs" in found
