"""The planners of stored runs. Readers of runs need them and no other code of a workflow.

What flows need is imported when the first run of a flow is met, for it is much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.runtime.lru_cache import text_cache
from loom.steps.planner import StepsPlanner

if TYPE_CHECKING:
    from loom.core.planner import Planner
    from loom.flows.planner import FlowPlanner
    from loom.flows.program import Program

STEPS: Planner = StepsPlanner()
"""The planner of all workflows in Python."""


def planner_for(document: bytes | None) -> Planner:
    """The planner of a stored run: from the document that is stored with it; None means steps in Python."""
    return STEPS if document is None else flow_planner(document)


@text_cache(most=64, bytes_in_all=4 << 20)
def flow_planner(text: bytes) -> FlowPlanner:
    """The planner of a flow's runs, from the document that is stored with them."""
    from loom.flows.compiler import program_of
    from loom.flows.planner import FlowPlanner

    return FlowPlanner(program_of(text.decode()))


def program_in(planner: Planner) -> Program | None:
    """The program of a flow's planner; None for workflows in Python."""
    found: Program | None = getattr(planner, "program", None)
    return found
