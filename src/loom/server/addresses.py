"""Callers who hold a signed address: it stands in for a key at one route, for one flow, and shows who has called.

The signature leaves the query before anything reads it. So no log, trace, stored answer or flow gets to see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_plus

from loom.runtime.durable.addresses import AnswerAddress, read_answer_key, read_trigger_address
from loom.runtime.durable.stored_definitions import DefinitionUnreadable
from loom.server.auth import Principal
from loom.server.problems import ApiProblem
from loom.store.errors import RunNotFound

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope as AsgiScope

    from loom.runtime.durable.stored_definitions import StoredDefinition
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Scope

HIDDEN = "***"
"""What is in a query in place of a signature."""

_SIGNATURE = "sig"
_ID = "address:"
"""What the ids of callers begin with who hold an address. No id of a key does."""


def hide_signature(scope: AsgiScope) -> None:
    """Take the signature out of the query of a request, and keep it for `signature_of`."""
    query: bytes = scope.get("query_string", b"")
    if b"sig" not in query and b"%" not in query:
        return
    parts = query.split(b"&")
    found: list[str] = []
    for place, part in enumerate(parts):
        name, _, value = part.partition(b"=")
        if unquote_plus(name.decode("latin-1")) == _SIGNATURE:
            found.append(unquote_plus(value.decode("latin-1")))
            parts[place] = f"{_SIGNATURE}={HIDDEN}".encode()
    if found:
        # Two signatures are none: which of them counts would be a matter of taste.
        scope["state"][_SIGNATURE] = found[0] if len(found) == 1 else ""
        scope["query_string"] = b"&".join(parts)


def signature_of(scope: AsgiScope) -> str | None:
    """Return the signature that a request has brought; None if it brought none."""
    found: str | None = scope.get("state", {}).get(_SIGNATURE)
    return found


class Addresses:
    """Knows again who holds an address that was signed with the secret of the store."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    async def caller_of_trigger(self, request: Request) -> Principal:
        """Return the caller of a trigger's address, or refuse the request with 401.

        The same is said of a flow that is not there as of a wrong signature.
        """
        name: str = request.path_params["name"]
        address = read_trigger_address(name, request.query_params)
        definition = await self._definition(name)
        signature = signature_of(request.scope) or ""
        if address is None or not await address.is_signed(self._runtime.signer, signature):
            raise not_an_address("This is no address that was given out here.")
        if definition is None or definition.address_key != address.key:
            raise not_an_address("This address was replaced by another one.")
        if address.until is not None and self._runtime.now() >= address.until:
            raise not_an_address("This address has expired.")
        return _caller(name, address.key, "start")

    async def caller_of_answer(self, request: Request) -> Principal:
        """Return the caller of the address of one run's answer, or refuse the request with 401."""
        run_id: str = request.path_params["run_id"]
        key = read_answer_key(request.query_params)
        signature = signature_of(request.scope) or ""
        if not await AnswerAddress(run_id, key).is_signed(self._runtime.signer, signature):
            raise not_an_address("This is no address that was given out here.")
        row = await self._runtime.store.get(run_id)
        if row is None:
            raise RunNotFound(run_id)
        definition = await self._definition(row.workflow)
        if definition is None or definition.address_key != key:
            raise not_an_address("This address was replaced by another one.")
        return _caller(row.workflow, key, "read")

    async def is_good(self, principal: str, key: str) -> bool:
        """Tell whether an address that was good when its holder called was not replaced since."""
        definition = await self._definition(unquote_plus(principal.removeprefix(_ID)))
        return definition is not None and str(definition.address_key) == key

    async def _definition(self, name: str) -> StoredDefinition | None:
        """Return what is stored of a flow; None of one that was deleted."""
        try:
            found = await self._runtime.definitions.stored.get(name)
        except DefinitionUnreadable:
            return None  # whoever may know of it is told elsewhere
        return found if found is not None and found.deleted_at is None else None


def holds_address(principal_id: str) -> bool:
    """Tell whether the id of a caller is that of one who holds an address."""
    return principal_id.startswith(_ID)


def not_an_address(detail: str) -> ApiProblem:
    """Make the problem of an address that opens nothing, or nothing any more."""
    return ApiProblem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="loom"'})


def _caller(workflow: str, key: int, scope: Scope) -> Principal:
    known_as = f"{_ID}{quote(workflow, safe='')}"
    return Principal(
        known_as,
        frozenset({scope}),
        frozenset({workflow}),
        name=f"address of {workflow}",
        lineage=known_as,
        address_key=key,
    )
