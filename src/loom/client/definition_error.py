"""A definition that a server refuses. Apart, since only those who send definitions need what it imports: loom.flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from loom.client.errors import ClientError
from loom.flows import diagnostics

if TYPE_CHECKING:
    from loom.api.refusals import Problem


class RemoteDefinitionError(ClientError, diagnostics.DefinitionError):
    """The server cannot use a definition. `problems` lists what is wrong, each with its path."""

    def __init__(self, problem: Problem) -> None:
        ClientError.__init__(self, problem)
        self.problems = tuple(
            diagnostics.Problem(
                place.path, place.message, severity="warning" if place.severity == "warning" else "error"
            )
            for place in problem.errors
        )

    @override
    def __str__(self) -> str:
        return str(self.problem)
