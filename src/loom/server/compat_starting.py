"""How a handler begins, and begins again. May import loom.runtime, loom.steps and loom.store."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.runtime.durable.starting import start_spec
from loom.runtime.flow import Flow
from loom.server.compat_handlers import AGAIN, handler_of, latest_run, number_of
from loom.server.views import HANDLER
from loom.steps.context import Context

if TYPE_CHECKING:
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.runtime import DurableRuntime
    from loom.store.codec import StartSpec
    from loom.store.records import RunRow


class HandlerBusy(Exception):
    """The handler cannot begin a run now; the text says why."""


class Beginning:
    """What a client has asked a workflow to begin with."""

    def __init__(self, code: Registered, inputs: Any, context: dict[str, Any] | None = None) -> None:
        self.code = code
        self._inputs = inputs
        self._context = context

    def spec(self) -> StartSpec:
        """What the run begins with. Of a context only the state counts: a run that it had begun stays where it is."""
        spec = start_spec(self.code, self.code.convert, self._inputs)
        staged = Context.from_dict(self.code.workflow, self._context)._staged if self._context else None
        if staged is None:
            return spec
        store, store_type = self.code.convert.store_values(staged)
        return replace(spec, store=store, store_type=store_type)


async def begin(runtime: DurableRuntime, beginning: Beginning, handler_id: str | None, nonce: str | None) -> str:
    """Start a run for a handler and return the run's id, once it is stored.

    A handler that has ended begins again, in a run of its own, with the state that its last run left. Without a name
    it gets that of the request, if that has one, so that a request that is repeated finds its run.
    """
    await runtime.ready()
    name, spec = beginning.code.name, beginning.spec()
    if handler_id is None:
        handler_id = nonce or uuid.uuid4().hex
        last = None
    else:
        last = await latest_run(runtime, handler_id)
    if last is None:
        await runtime._start(name, handler_id, spec, {HANDLER: handler_id}, beginning.code)
        return handler_id
    _check_free(last, handler_id, name)
    if not spec.store and not isinstance(beginning.code.workflow, Flow):  # a flow has no state but that of its run
        state = await runtime.state_at(last.run_id)
        spec = replace(spec, store=dict(state.store), store_type=state.store_type)
    run_id = f"{handler_id}~{number_of(last) + 1}"
    await runtime._start(name, run_id, spec, {HANDLER: handler_id, AGAIN: "true"}, beginning.code)
    return run_id


def _check_free(last: RunRow, handler_id: str, workflow: str) -> None:
    if last.workflow != workflow:
        # Which workflow has it may be none of the caller's business.
        raise HandlerBusy(f"The name {handler_id!r} is taken: choose another handler_id.")
    if handler_of(last) != handler_id:
        raise HandlerBusy(f"{handler_id!r} is a run of the handler {handler_of(last)!r}: choose another handler_id.")
    if last.head.status == "running":
        raise HandlerBusy(f"The handler {handler_id!r} is running.")
