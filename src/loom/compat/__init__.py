"""The import surface of llama-index-workflows: `loom.compat.X` is `workflows.X`.

The modules here re-export the objects of Loom under the names that programs written for llama-index-workflows know;
none has logic of its own. After `install()` such a program runs on Loom without a change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.steps.context import Context
    from loom.steps.decorators import catch_error, step
    from loom.steps.workflow import Workflow

__all__ = ["Context", "Workflow", "catch_error", "step"]

_HOMES = {
    "Context": "loom.steps.context",
    "Workflow": "loom.steps.workflow",
    "catch_error": "loom.steps.decorators",
    "step": "loom.steps.decorators",
}

# Programs use these as attributes after a plain `import workflows`.
_MODULES = frozenset(
    {
        "collect",
        "context",
        "decorators",
        "errors",
        "events",
        "handler",
        "plugins",
        "representation",
        "resource",
        "retry_policy",
        "runtime",
        "testing",
        "types",
        "utils",
        "workflow",
    }
)


def install() -> None:
    """Let `workflows` and its alias `llama_agents.workflows` be Loom in this process, from now on.

    A second call changes nothing. Raises ImportError if another package of that name is already imported: two families
    of events and contexts must never meet.
    """
    from loom.compat._alias import install_aliases

    install_aliases()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
