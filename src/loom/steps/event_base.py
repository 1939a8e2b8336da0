"""The events that authors write: `Event` and the four it comes with. May import `dict_like` and `registry`."""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

from loom.steps.dict_like import DictLikeModel
from loom.steps.registry import framework_name, register_event


class Event(DictLikeModel):
    """What steps take and return: declared fields, and any other keyword besides.

    Every subclass is known by its name from the moment it is defined, so that stored events find their class again.
    """

    @classmethod
    @override
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        register_event(cls)


class StartEvent(Event):
    """Starts a run; `run(**kwargs)` makes one of its keywords."""


class StopEvent(Event):
    """Ends a run. The run's result is `result`, or the event itself where a subclass is used."""

    _result: Any = PrivateAttr(default=None)

    def __init__(self, result: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._result = result

    def _get_result(self) -> Any:
        """What `result` answers; subclasses may override it."""
        return self._result

    @property
    def result(self) -> Any:
        """The result of the run."""
        return self._get_result()

    @model_serializer(mode="wrap")
    @override
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The declared fields, the result unless it is None, and the extras under `_data` if there are any."""
        dumped: dict[str, Any] = handler(self)
        if self._result is not None:
            dumped["result"] = self._result
        if self._data:
            dumped["_data"] = self._data
        return dumped

    @override
    def __repr__(self) -> str:
        shown = {**self._data, **self.model_dump()}
        shown.pop("_data", None)
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in shown.items())})"

    @override
    def __str__(self) -> str:
        # A subclass carries its result in fields of its own.
        return repr(self) if self._result is None and type(self) is not StopEvent else str(self._result)


class InputRequiredEvent(Event):
    """Asks someone outside for input. It goes to the stream, and no step has to accept it."""


class HumanResponseEvent(Event):
    """Brings an answer from outside. No step has to produce it."""


register_event(Event)
for _event in (Event, StartEvent, StopEvent, InputRequiredEvent, HumanResponseEvent):
    framework_name(_event, f"workflows.events.{_event.__name__}")
