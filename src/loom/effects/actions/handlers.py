"""The author's handlers: activities, actors, AI providers, connectors and actions, by name, and how they are called.

A handler gets one argument and, if it asks for it by its annotation, the `ActionContext`. It may be async or not; one
that is not runs in a thread. Registering a name again replaces the handler.
"""

from __future__ import annotations

import asyncio
import inspect
import typing
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from msgspec import Struct

from loom.effects.actions.connections import Authentication, ConnectorSpec, check_address, document_source
from loom.flows.plain import copy_of

if typing.TYPE_CHECKING:
    from os import PathLike

_H = TypeVar("_H", bound=Callable[..., Any])

_PLACES = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


class _Connected:
    """What a context has beside its fields: a handler that returns its context must not give secrets away."""

    __slots__ = ("connection",)

    connection: dict[str, Any] | None
    """The entry of the project's `connections.json` that the action names, with its secrets; None if there is none."""


@dataclass(frozen=True, slots=True)
class ActionContext(_Connected):
    """What a handler may know about the action that it works for."""

    run_id: str
    idempotency_key: str
    """The same for every attempt at the same action, and for no other: give it to services that bill."""
    attempt: int
    """From 0."""
    action: str
    """The action's name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "connection", None)

    def over(self, connection: dict[str, Any] | None) -> ActionContext:
        """Give the context to an action that works over a connection."""
        context = replace(self)
        object.__setattr__(context, "connection", connection)
        return context


class ActionHandlers(Struct, eq=False):
    """Handlers by name. Action types and the names of connectors are known without case."""

    activities: dict[str, Callable[..., Any]] = {}
    actors: dict[str, Callable[..., Any]] = {}
    ai_providers: dict[str, Callable[..., Any]] = {}
    actions: dict[str, Callable[..., Any]] = {}
    connectors: dict[str, ConnectorSpec] = {}

    def activity(self, name: str) -> Callable[[_H], _H]:
        """Decorator: the function is the activity of this name."""
        return _registering(self.activities, _name("activity", name))

    def actor(self, name: str) -> Callable[[_H], _H]:
        """Decorator: the class or function is the actor of this type."""
        return _registering(self.actors, _name("actor", name))

    def ai_provider(self, name: str) -> Callable[[_H], _H]:
        """Decorator: the function answers the `ai` actions that name this provider."""
        return _registering(self.ai_providers, _name("ai_provider", name))

    def action(self, type: str) -> Callable[[_H], _H]:  # noqa: A002 - it is what flows call it
        """Decorator: the function does the actions of this type, in any case."""
        return _registering(self.actions, _name("action", type).lower())

    @overload
    def connector(self, name: str) -> Callable[[_H], _H]: ...

    @overload
    def connector(
        self,
        name: str,
        *,
        openapi: str | PathLike[str] | Mapping[str, Any],
        base_url: str | None = None,
        auth: Authentication | None = None,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        idempotency_header: str | None = "Idempotency-Key",
    ) -> None: ...

    def connector(
        self,
        name: str,
        *,
        openapi: str | PathLike[str] | Mapping[str, Any] | None = None,
        base_url: str | None = None,
        auth: Authentication | None = None,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        idempotency_header: str | None = "Idempotency-Key",
    ) -> Callable[[_H], _H] | None:
        """Serve the connection of this name: with the operations of an OpenAPI document, or with a function.

        `openapi` is a file, a text or a dict, of version 2.0, 3.0 or 3.1; it is read when a flow first uses it.
        `base_url` takes the place of the address in the document. `allow_private` lets requests reach it, and the
        address that gives out tokens, where these are no public ones. Without `openapi` this is a decorator: the
        function does all actions of the connection.
        """
        key = _name("connector", name).lower()
        if openapi is None:

            def register(handler: _H) -> _H:
                self.connectors[key] = ConnectorSpec(name=name, handler=_callable(handler, name))
                return handler

            return register
        if base_url is not None:
            check_address(base_url, "base_url", "https://api.example.com/v1")
        if auth is not None and not isinstance(auth, Authentication):
            raise TypeError(
                f"auth must be a loom.ApiKey, BasicAuth, BearerToken or ClientCredentials, not {type(auth).__name__}."
            )
        self.connectors[key] = ConnectorSpec(
            name=name,
            openapi=document_source(openapi),
            base_url=base_url,
            auth=auth,
            headers=dict(headers or {}),
            allow_private=allow_private,
            idempotency_header=idempotency_header,
        )
        return None

    def connector_for(self, names: Iterable[str]) -> ConnectorSpec | None:
        """Find the connector that goes by the first of these names that one goes by."""
        if not self.connectors:
            return None
        found = (self.connectors.get(name.lower()) for name in names)
        return next((spec for spec in found if spec is not None), None)

    def serves_connection(self, name: str, action_type: str) -> bool:
        """Say whether something here can do actions of this type over the connection of this name."""
        return name.lower() in self.connectors or action_type.lower() in self.actions


HANDLERS = ActionHandlers()
"""The handlers that `loom.activity` and its like register."""

activity, actor, ai_provider, action = HANDLERS.activity, HANDLERS.actor, HANDLERS.ai_provider, HANDLERS.action
connector = HANDLERS.connector


class _Parameter(Struct, frozen=True):
    name: str
    by_place: bool
    is_context: bool
    takes_argument: bool


class _Signature(Struct, frozen=True):
    """The parameters of a handler, and whether it is async."""

    parameters: tuple[_Parameter, ...]
    is_async: bool

    def fit(self, argument: Any, context: ActionContext, named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments by place and by keyword. A handler without a parameter for its argument does without."""
        places: list[Any] = []
        keywords: dict[str, Any] = {}
        given = gap = False
        for parameter in self.parameters:
            if parameter.is_context:
                value: Any = context
            elif parameter.name in named:
                value = named[parameter.name]
            elif not given and parameter.takes_argument:
                given, value = True, argument
            else:
                gap = True  # it has a default, or the call says what is missing
                continue
            if parameter.by_place and not gap:
                places.append(value)
            else:
                keywords[parameter.name] = value
        return places, keywords


_shapes: weakref.WeakKeyDictionary[Any, dict[bool, _Signature]] = weakref.WeakKeyDictionary()
"""By function, and whether it is bound to an object: looking at a signature takes longer than most calls."""


async def call_handler(
    function: Callable[..., Any], argument: Any, context: ActionContext, named: dict[str, Any] | None = None
) -> Any:
    """Call a handler: with its argument, with the context if it asks for one, and with what it asks for by name."""
    shape = _shape_of(function)
    # The argument is part of the run's state, which a handler must not be able to change.
    places, keywords = shape.fit(copy_of(argument), context, named or {})
    if shape.is_async:
        return await function(*places, **keywords)
    result = await asyncio.to_thread(_in_thread, function, places, keywords)
    return await result if inspect.isawaitable(result) else result


def asks_for(function: Callable[..., Any], name: str) -> bool:
    """Say whether a handler has a parameter of this name."""
    return any(parameter.name == name for parameter in _shape_of(function).parameters)


def _shape_of(function: Callable[..., Any]) -> _Signature:
    key = getattr(function, "__func__", function)
    bound = key is not function
    try:
        known = _shapes.setdefault(key, {})
    except TypeError:  # an object that nobody can refer to weakly
        return _look_at(function)
    shape = known.get(bound)
    if shape is None:
        shape = known[bound] = _look_at(function)
    return shape


def _look_at(function: Callable[..., Any]) -> _Signature:
    hints = _hints(function)
    parameters = tuple(
        _Parameter(
            name,
            parameter.kind in _PLACES,
            _is_context(hints.get(name, parameter.annotation)),
            parameter.kind is not inspect.Parameter.VAR_KEYWORD,
        )
        for name, parameter in inspect.signature(function).parameters.items()
    )
    bare = inspect.unwrap(function)
    called = bare if inspect.isroutine(bare) else getattr(bare, "__call__", bare)  # noqa: B004 - its code is wanted
    return _Signature(parameters, inspect.iscoroutinefunction(called))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function if inspect.isroutine(function) else type(function).__call__)
    except (NameError, TypeError, AttributeError):
        return {}  # an annotation that cannot be read here; the text of the context's is recognised all the same


def _is_context(annotation: Any) -> bool:
    if annotation is ActionContext or ActionContext in typing.get_args(annotation):
        return True
    return isinstance(annotation, str) and annotation.rpartition(".")[2] == "ActionContext"


def _in_thread(function: Callable[..., Any], places: list[Any], keywords: dict[str, Any]) -> Any:
    try:
        return function(*places, **keywords)
    except (StopIteration, GeneratorExit) as error:
        # A future cannot carry them: who awaits the thread would wait for ever, or be closed.
        raise RuntimeError(f"The handler raised {type(error).__name__}.") from error


def _registering(handlers: dict[str, Callable[..., Any]], name: str) -> Callable[[_H], _H]:
    def register(handler: _H) -> _H:
        handlers[name] = _callable(handler, name)
        return handler

    return register


def _callable(handler: Any, name: str) -> Callable[..., Any]:
    if not callable(handler):
        raise TypeError(f"The handler for {name!r} must be a function or a class, not {handler!r}.")
    return handler  # type: ignore[no-any-return]


def _name(what: str, name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"loom.{what}() takes a name: @loom.{what}('name'), not {name!r}.")
    return name
