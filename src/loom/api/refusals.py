"""How a server says no: problem+json with a code for programs, and the places of the request that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NotRequired

from msgspec import Meta
from typing_extensions import override

from loom.api.answers import Answer, promises
from loom.api.runs import RunError

_Pointer = Annotated[str, Meta(description="A JSON Pointer into the request or the definition.")]
_Type = Annotated[str, Meta(description="`urn:loom:problem:` and the code.")]


@promises(
    path=_Pointer,
    severity=NotRequired[str],
    code=NotRequired[str | None],
    line=NotRequired[int | None],
    column=NotRequired[int | None],
)
class Place(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a request that is wrong; of a definition also how bad it is, and its line where that is known."""

    path: str
    message: str
    severity: str | None = None
    """`error` or `warning`; None outside of definitions, where all places are errors."""
    code: str | None = None
    line: int | None = None
    column: int | None = None


@promises(type=_Type, detail=str, errors=NotRequired[list[Place]], error=NotRequired[RunError])
class Problem(Answer, frozen=True, kw_only=True):
    """Why a request was refused."""

    type: str = ""
    title: str = ""
    status: int
    detail: str | None = None
    instance: str = ""
    code: str
    request_id: str | None = None
    errors: Sequence[Place] = ()
    error: RunError | None = None
    """What the run has failed with that was to answer."""

    @override
    def __str__(self) -> str:
        text = self.detail or self.title or self.code
        # One that names no place, and says what the problem says, adds nothing.
        told = [place for place in self.errors if place.path or place.message != text]
        places = [f"{place.path or '(request)'}: {place.message}" for place in told]
        request = f" (request {self.request_id})" if self.request_id else ""
        return "\n".join([f"{text}{request}", *places])
