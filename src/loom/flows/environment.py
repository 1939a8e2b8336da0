"""The environment of a flow's expressions: variables, records and time, as seen from one action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.persistent import EMPTY_FIFO
from loom.expressions.dotnet.timestamps import timestamp_text
from loom.expressions.errors import FunctionError, SettingNotNamed
from loom.expressions.meter import ELEMENT, NODE, SLOT, spend
from loom.flows.action_types import LOOP_VARIABLES
from loom.flows.beside import find_name
from loom.flows.calls import CALLBACK
from loom.flows.diagnostics import did_you_mean
from loom.flows.outcomes import outputs_in, record_dict, result_of
from loom.flows.plain import check_weight
from loom.flows.program import Node, Operation
from loom.flows.rules import FOREACH_HAS_RESULTS
from loom.flows.state import EachState, Frame, iterations_around

if TYPE_CHECKING:
    from loom.core.persistent import Map
    from loom.flows.program import Program
    from loom.flows.state import LoopState, Record
    from loom.flows.walk import Walk

_LOOP_VARIABLES = {name.lower() for name in LOOP_VARIABLES}

_TYPE = "Microsoft.Logic/workflows"
_RESOURCES = f"/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/loom/providers/{_TYPE}"
"""Prefix of ids. Real flows cut their subscription and their resource group out of their own id."""


class FlowEnvironment:
    """The place in a flow at which expressions are evaluated. The walk moves it from action to action."""

    __slots__ = ("_before", "_current", "_element", "_frame", "_has_element", "_loop", "_node", "_walk")

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._node = _BEHIND
        self._frame = _NOWHERE
        self._loop: LoopState | None = None
        self._current: Record | None = None
        self._element: Any = None
        self._has_element = False
        self._before: tuple[Map[int, Record], dict[str, Any]] | None = None
        """The records of an iteration and its outputs by name. A result that is read often is weighed once."""

    def stand_at(
        self, frame: Frame, node: Node, *, loop: LoopState | None = None, current: Record | None = None
    ) -> None:
        """Move to an action. `loop` is the loop whose condition is tested; None: no test is made."""
        self._frame, self._node, self._loop, self._current = frame, node, loop, current
        self._has_element = False

    def stand_at_end(self, root: Frame) -> None:
        """Move to the place of the flow's outputs: after all actions."""
        self.stand_at(root, _BEHIND)

    def with_element(self, element: Any) -> FlowEnvironment:
        """Set the element of the array that the action works on."""
        self._element, self._has_element = element, True
        return self

    # -- records ------------------------------------------------------------------------------------------------------

    def _scope(self, loops: tuple[int, ...]) -> Frame:
        """Find the frame with the records of an action inside these loops, of the same iteration where there is one.

        An action in another loop has left its last iteration's records with the nearest frame around both.
        """
        frames = self._walk.frames
        scope = frames[frames[self._frame.id].scope]
        depth = _common(self._node.loops, loops)
        while scope.depth > depth:
            scope = frames[frames[scope.parent].scope]
        return scope

    def _find(self, name: str) -> tuple[Node, Record]:
        node = self._walk.program.find(name)
        if node is None:
            raise FunctionError(f"There is no action '{name}' in this flow.{_similar(name, self._walk.program)}")
        record: Record | None = self._scope(node.loops).records.get(node.index)
        if record is None:
            raise FunctionError(f"The action '{node.name}' has not run yet, so there is nothing to read.")
        return node, record

    def action(self, name: str) -> Any:
        """Return the record of an action."""
        node, record = self._find(name)
        return record_dict(node, record)

    def outputs(self, name: str) -> Any:
        """Return the outputs of an action; null if it was skipped."""
        return self._find(name)[1].outputs

    def current_action(self) -> Any:
        """Return the record of the action that the expression belongs to, as far as it has come."""
        if self._current is not None:
            return record_dict(self._node, self._current)
        return {"name": self._node.name, "startTime": timestamp_text(self._walk.at), "status": "Running"}

    def result(self, scope: str) -> Any:
        """Return the records of the actions in a scope or loop."""
        node, record = self._find(scope)
        return result_of(self._walk, self._scope(node.loops), node, record)

    # -- names --------------------------------------------------------------------------------------------------------

    def variable(self, name: str) -> Any:
        """Read a variable of the run, or of a loop around."""
        key = name.lower()
        found = self._walk.variables.get(key)
        if found is None:
            return self._loop_variable(name)
        if found.appended.size:
            spend(len(found.value or ()) * ELEMENT + found.appended.size * NODE, len(found.value or ()) * SLOT)
            found = replace(found, value=found.whole(), appended=EMPTY_FIFO)
            self._walk.variables = self._walk.variables.set(key, found)
        return found.value

    def _loop_variable(self, name: str) -> Any:
        loop_name, _, short = name.rpartition("_")
        wanted = (short if loop_name else name).lower()
        if wanted == "item" and not loop_name:
            return self.item()
        if wanted not in _LOOP_VARIABLES:
            known = [variable.name for variable in self._walk.variables.values()]
            raise FunctionError(f"The variable '{name}' does not exist (yet).{did_you_mean(name, known)}")
        state, index = self._loop_state(loop_name, name)
        if wanted == "loopindex":
            return index
        if wanted == "loopcount":
            return index + 1
        if state is None or (isinstance(state, EachState) and self._walk.rules < FOREACH_HAS_RESULTS):
            raise FunctionError(f"'{name}' is a variable of loops with a condition, and the loop here has none.")
        if wanted == "loopstarttime":
            return timestamp_text(state.start_time)
        return self._result_before(state, index) if isinstance(state, EachState) else state.last_result

    def _result_before(self, state: EachState, index: int) -> Any:
        """Return the outputs of the iteration before, by action; null in the first, or if that has not ended."""
        records = state.iterations.get(index - 1)
        if records is None:
            return None
        if self._before is None or self._before[0] is not records:
            program = self._walk.program
            outputs = outputs_in(program, program.nodes[state.node].blocks[0], records)
            check_weight(outputs)  # they may hold outputs of the iteration before, which hold the outputs before them
            self._before = (records, outputs)
        return self._before[1]

    def _loop_state(self, loop_name: str, name: str) -> tuple[LoopState | EachState | None, int]:
        """Find the state and the iteration of the innermost loop, or of the loop of this name."""
        nodes = self._walk.program.nodes
        if self._loop is not None and (not loop_name or nodes[self._loop.node].name.lower() == loop_name.lower()):
            return self._loop, self._loop.iteration
        for iteration in self._iterations():
            owner = nodes[self._walk.program.blocks[iteration.block].owner]
            if not loop_name or owner.name.lower() == loop_name.lower():
                number = iteration.loop
                return self._walk.loops.get(number) or self._walk.eaches.get(number), iteration.index
        raise FunctionError(f"'{name}' is a variable of a loop, and there is no such loop around this place.")

    def _iterations(self) -> list[Frame]:
        """List the iterations around this place, innermost first."""
        frames = self._walk.frames
        return iterations_around(frames, frames[self._frame.id])

    def parameter(self, name: str) -> Any:
        """Read a parameter: the value given at the start, else the default."""
        parameter = self._walk.program.parameters.get(name.lower())
        given = self._walk.parameters
        if parameter is not None and parameter.name in given:
            return given[parameter.name]
        if parameter is None or not parameter.declared:
            known = [p.name for p in self._walk.program.parameters.values() if p.declared]
            raise FunctionError(f"There is no parameter '{name}' in this flow.{did_you_mean(name, known)}")
        if not parameter.has_default:
            raise FunctionError(f"The parameter '{parameter.name}' was not given and has no default.")
        return parameter.default

    def app_setting(self, name: str) -> Any:
        """Read an app setting as it was when the run began; null if there was none of this name.

        Only the settings that the definition names came with the start. Runs of a definition that stands beside no
        project, among them all older ones, have none.
        """
        beside = self._walk.program.beside
        if beside is None:
            return None
        named = find_name(beside.settings, name)
        if named is None:
            raise SettingNotNamed(beside.settings)
        return self._walk.plan.settings.get(named)

    def trigger(self) -> Any:
        """Return the record of the trigger."""
        return self._walk.trigger

    def item(self) -> Any:
        """Return the element that the action works on, or that of the innermost foreach."""
        if self._has_element:
            return self._element
        nodes = self._walk.program.nodes
        for iteration in self._iterations():
            if nodes[self._walk.program.blocks[iteration.block].owner].type == "foreach":
                return iteration.item
        raise FunctionError("There is no loop over elements around this place: item() has no meaning here.")

    def items(self, loop: str) -> Any:
        """Return the current element of a named loop."""
        return self._iteration_of(loop).item

    def iteration_index(self, loop: str) -> int:
        """Return the current iteration of a named loop, from 0."""
        node = self._walk.program.find(loop)
        if self._loop is not None and node is not None and self._loop.node == node.index:
            # The test of a loop belongs to the iteration that has just run.
            return max(0, self._loop.iteration - 1)
        return self._iteration_of(loop).index

    def _iteration_of(self, loop: str) -> Frame:
        node = self._walk.program.find(loop)
        if node is None:
            raise FunctionError(f"There is no loop '{loop}' in this flow.{_similar(loop, self._walk.program)}")
        for iteration in self._iterations():
            if self._walk.program.blocks[iteration.block].owner == node.index:
                return iteration
        raise FunctionError(f"The loop '{loop}' is not around this place.")

    # -- the world ----------------------------------------------------------------------------------------------------

    def workflow(self) -> Any:
        """Return the record of the workflow and of its run."""
        walk = self._walk
        name = walk.program.name
        path = f"{_RESOURCES}/{name}"
        run = {"id": f"{path}/runs/{walk.run_id}", "name": walk.run_id, "type": f"{_TYPE}/runs"}
        return {"id": path, "name": name, "type": _TYPE, "location": "", "tags": {}, "run": run}

    def callback_url(self) -> str:
        """Return a placeholder for the address of answers. Only the host knows it, and puts it in place of this."""
        return CALLBACK

    def agent_parameter(self, name: str) -> Any:
        """Refuse: there are no agents here."""
        raise FunctionError(f"agentParameters('{name}') has a meaning in the tools of an agent only.")

    def utc_now(self) -> str:
        """Return the time of the tick."""
        return timestamp_text(self._walk.at)

    def random_below(self, limit: int) -> int:
        """Draw the next random number of the run."""
        return self._walk.random_below(limit)


_NOWHERE = Frame(0, 0, -1, 0, 0, 0, 0.0)
_BEHIND = Node(-1, "outputs", "outputs", "outputs", 0, Operation())


def _common(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """Count the loops around both."""
    if ours == theirs:
        return len(ours)
    count = 0
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            break
        count += 1
    return count


def _similar(name: str, program: Program) -> str:
    return did_you_mean(name, [node.name for node in program.nodes])
