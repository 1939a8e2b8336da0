"""The state of workflows that declare none, and the type variable whose default it is.

May import `loom.steps.dict_like` and `loom.steps.registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from loom.steps.dict_like import DictLikeModel
from loom.steps.registry import framework_name


class DictState(DictLikeModel):
    """A state with whatever keys its steps give it, as items or as attributes."""

    model_config = ConfigDict(defer_build=True)

    if TYPE_CHECKING:  # type checkers would derive a signature without keywords from the fields

        def __init__(self, **params: Any) -> None: ...


framework_name(DictState, "workflows.context.state_store.DictState")

MODEL_T = TypeVar("MODEL_T", bound=BaseModel, default=DictState)
"""The class of a store's state."""
