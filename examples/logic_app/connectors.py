"""Connectors of the project in this folder: what takes the place of its managed connections."""

from __future__ import annotations

from typing import Any

import loom


@loom.action("ApiConnection")
def teams(inputs: dict[str, Any], context: loom.ActionContext) -> dict[str, Any]:
    """Pretend to send a message. A real handler sends it to the address, with the key."""
    assert context.connection is not None
    return {"body": f"{context.connection['connectionRuntimeUrl']}: {inputs['body']}"}
