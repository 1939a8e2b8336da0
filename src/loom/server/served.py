"""What is served here: the code that new runs begin with. May import the server's frame and loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.flows.suggest import did_you_mean
from loom.runtime.durable.definitions_stored import DefinitionNotFound
from loom.runtime.durable.names import OWN
from loom.server.problems import ApiProblem

if TYPE_CHECKING:
    from loom.runtime.durable.registered import Registered
    from loom.server.routing import Call

_SHOWN = 200
"""So many characters of a name that is not known are told."""


async def served_code(call: Call, workflow: str) -> Registered:
    """The code of a workflow that the key is good for; 404 for what is not served here, or not any more."""
    call.check_workflow(workflow)
    try:
        code = await call.runtime.definitions.code_for(workflow) if not workflow.startswith(OWN) else None
    except DefinitionNotFound as error:
        raise ApiProblem("definition-not-found", str(error)) from error
    if code is None:
        name = workflow[:_SHOWN]
        seen = [known for known in call.runtime.codes if call.principal.sees(known) and not known.startswith(OWN)]
        detail = f"No workflow {name!r} is served here.{did_you_mean(name, seen)}"
        raise ApiProblem("definition-not-found", detail)
    return code
