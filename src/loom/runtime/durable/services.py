"""What the actions of flows find in a process that keeps runs. May import loom.effects and the rest of loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy
from loom.runtime.durable.actors import StoredActors

if TYPE_CHECKING:
    from loom.runtime.durable.settings import Settings
    from loom.runtime.durable.working import WorkingRuntime


def services_for(runtime: WorkingRuntime, settings: Settings) -> Services:
    """The services of a runtime, as its settings have them."""
    allowed = settings.allowed_hosts
    return Services(
        http=HttpPolicy.allowing(*allowed) if allowed is not None else None,
        actors=StoredActors(runtime),
        callbacks=runtime.callbacks,
        max_response=settings.response_bytes,
        max_response_values=settings.max_response_values,
    )
