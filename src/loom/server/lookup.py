"""Which workflows this server offers, and the code that their new runs begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.flows.diagnostics import did_you_mean
from loom.runtime.durable.names import OWN
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.server.problems import ApiProblem

if TYPE_CHECKING:
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.call import Call

_SHOWN = 200
"""How many characters of an unknown name a refusal repeats."""


async def served_code(call: Call, workflow: str) -> Registration:
    """Return the code of a workflow that the key is good for; 404 for what is not served here, or not any more."""
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


def offered(runtime: WorkerRuntime) -> list[str]:
    """Return the names of the workflows and flows that can be started."""
    return sorted(name for name in runtime.codes if is_offered(name) and name not in runtime.definitions.deleted)


def is_offered(name: str) -> bool:
    """Tell whether runs of a workflow are for clients; the engine keeps some for itself."""
    return not name.startswith(OWN)
