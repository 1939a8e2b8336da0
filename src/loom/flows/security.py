"""Secrecy: the inputs, outputs and variables that people may not see.

The document hides some, and secrecy spreads until nothing more follows. An action whose expressions read something
hidden has hidden inputs. If its outputs are made of its inputs, they are hidden as well. A variable that was given
something hidden is hidden. A container whose actions have hidden outputs has hidden outputs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from loom.flows.lowering.context import ACTION_FUNCTIONS

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
"""Types whose outputs are made of the outputs of the actions in them."""

_TRIGGER_FUNCTIONS = frozenset(
    {"trigger", "triggers", "triggerbody", "triggeroutputs", "triggerformdatavalue", "triggerformdatamultivalues"}
    | {"triggermultipartbody"}
)
_READS_BY_NAME = ACTION_FUNCTIONS | {"variables"}
_WHOLE_RECORDS = frozenset({"actions", "action", "result"})
"""Functions that give inputs as well as outputs."""


def mark_secure(low: Lowering, program: Program) -> None:
    """Mark secure nodes and variables. A secure action has no tracked properties."""
    secrets = _Secrets(low, program)
    secrets.spread()
    program.secure_variables = frozenset(secrets.variables)
    program.secure_outputs = secrets.in_outputs()
    for node in program.nodes:
        if node.secure_inputs or node.secure_outputs:
            node.tracked = None


class _Secrets:
    """Nodes and variables that are known to be hidden so far."""

    def __init__(self, low: Lowering, program: Program) -> None:
        self.program = program
        self.variables: set[str] = set()
        self._references: dict[int, list[Reference]] = {}
        for reference in low.references:
            self._references.setdefault(reference.owner, []).append(reference)
        self._readers: dict[str, set[int]] = {}
        """Actions by what they read: the lower-case name of an action or a variable, empty for any."""
        for reference in low.references:
            if reference.owner >= 0 and (reference.name is not None or reference.function in _READS_BY_NAME):
                self._readers.setdefault((reference.name or "").lower(), set()).add(reference.owner)
        self._hidden_inputs = any(node.secure_inputs for node in program.nodes)
        self._hidden_outputs = any(node.secure_outputs for node in program.nodes)
        """True if any action is known to hide these."""
        self._assigned = _assigned(low)
        self._parameters = {name for name, parameter in program.parameters.items() if parameter.is_secure}
        self._trigger = any(_hides_outputs(trigger.definition) for trigger in program.triggers)
        self._settings = program.beside is not None
        """False for a flow beside no project: its settings are null, as they were when its runs were stored."""

    def in_outputs(self) -> bool:
        """Tell whether expressions outside all actions, such as the flow's outputs, read something hidden."""
        return any(self._is_secret(None, reference) for reference in self._references.get(-1, ()))

    def spread(self) -> None:
        """Check every action, and check its readers again when more is known about it.

        An action changes twice at most, so the work is in proportion to the references and to the nesting.
        """
        nodes = self.program.nodes
        pending = deque(range(len(nodes)))
        waiting = set(pending)
        while pending:
            index = pending.popleft()
            waiting.discard(index)
            node, known = nodes[index], len(self.variables)
            before = (node.secure_inputs, node.secure_outputs)
            self._look_at(node)
            touched: set[int] = set()
            if len(self.variables) > known:
                for name in self._assigned.get(index, ()):
                    touched |= self._readers.get(name, set())
                if not known:
                    touched |= self._readers.get("", set())
            if (node.secure_inputs, node.secure_outputs) != before:
                touched |= self._touched_by(node)
            for other in sorted(touched - waiting):
                pending.append(other)
                waiting.add(other)

    def _touched_by(self, node: Node) -> set[int]:
        """Find the actions to check again: actions inside and around it, and readers of these by name."""
        touched = set(node.descendants)
        if (node.secure_inputs and not self._hidden_inputs) or (node.secure_outputs and not self._hidden_outputs):
            self._hidden_inputs = self._hidden_inputs or node.secure_inputs
            self._hidden_outputs = self._hidden_outputs or node.secure_outputs
            touched |= self._readers.get("", set())
        nodes, blocks = self.program.nodes, self.program.blocks
        while True:
            touched |= self._readers.get(node.name.lower(), set())
            owner = blocks[node.block].owner
            if owner < 0:
                return touched
            node = nodes[owner]
            touched.add(owner)

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
        if function == "appsetting":
            return self._settings
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
        whole = function in _WHOLE_RECORDS
        if named is None:
            return self._hidden_outputs or (whole and self._hidden_inputs)
        nodes = [named]
        if function == "result":
            nodes += [self.program.nodes[index] for index in named.descendants]
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
    """Tell whether a name is secret. A name that is known only in the run (None) may be any of them."""
    return bool(secrets) if name is None else name.lower() in secrets


def _assigned(low: Lowering) -> dict[int, list[str]]:
    assigned: dict[int, list[str]] = {}
    for index, part in low.assigned:
        # The variable that an expression names is known only in the run, so it may be any.
        names = [part.value.lower()] if "@" not in part.value else low.variables
        assigned.setdefault(index, []).extend(names)
    return assigned


def _hides_outputs(trigger: dict[str, object]) -> bool:
    found: object = trigger
    for key in ("runtimeConfiguration", "secureData", "properties"):
        found = found.get(key) if isinstance(found, dict) else None
    return isinstance(found, list) and "outputs" in found
