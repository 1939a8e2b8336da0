"""Calls of functions, as closures. Pure.

A closure takes the environment and returns a value. There is one shape for each number of arguments, so that a call
costs little more than its function. What a function refuses becomes an `ExpressionError` with the place of the call.
`call_function` calls a function by its name outside of any expression.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from loom.expressions.errors import ExpressionError, FunctionError
from loom.expressions.functions import find
from loom.expressions.functions.registry import refuse
from loom.expressions.meter import FREE, MAX_TOTAL, meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.environment import Environment
    from loom.expressions.functions.registry import Function


Compiled: TypeAlias = "Callable[[Environment], Any]"
"""An expression, ready to be evaluated."""
_NOT_THERE_YET = frozenset({"variables", "actions", "outputs", "body", "actionoutputs", "actionbody", "result"})
"""Functions that read what an earlier part of the run has left."""


class Constant:
    """An expression that is always the same value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _: Environment) -> Any:
        """The value, whatever the environment."""
        return self.value


class SourceLocation(NamedTuple):
    """The place of a call or an access in the text, for errors."""

    text: str
    position: int | None
    function: str = ""

    def error(self, message: str) -> ExpressionError:
        """An error at this place. The caller raises it."""
        subject = f"the function '{self.function}': " if self.function else ""
        return ExpressionError(subject + message, self.text, self.position, self.function)


def compile_call(name: str, arguments: list[Compiled], place: SourceLocation, *, forgiving: bool = False) -> Compiled:
    """Compile a call of a function by its name. What is wrong with it shows only when it is evaluated.

    A `forgiving` call of a function that reads what an earlier part of the run has left is null if that is not there
    yet.
    """
    found = find(name)
    problem = call_problem(name, len(arguments))
    if found is None or problem is not None:
        return _failure(problem or "", place)
    lazy = _LAZY.get(name.lower())
    if lazy is not None:
        return lazy(arguments, place)
    if forgiving and name.lower() in _NOT_THERE_YET:
        return _forgiving(found.call, arguments[0], place)
    return (_asking if found.asks else _plain)(found.call, arguments, place)


def call_problem(name: str, count: int) -> str | None:
    """Say what is wrong with a call of a function with `count` arguments; None if nothing is."""
    found = find(name)
    if found is None:
        return f"The template function '{name}' is not defined or not valid"
    if found.min_args <= count and (found.max_args is None or count <= found.max_args):
        return None
    return f"The template function '{name}' expects {_arity(found)}, not {count}"


def call_function(name: str, *values: Any, env: Environment | None = None) -> Any:
    """Call a function with these values; raises `FunctionError` if it refuses them."""
    problem = call_problem(name, len(values))
    found = find(name)
    if found is None or problem is not None:
        raise FunctionError(problem or name)
    return found.call(env, *values) if found.asks else found.call(*values)


def _arity(found: Function) -> str:
    least, most = found.min_args, found.max_args
    if most is None:
        return f"at least {_counted(least)}"
    return f"exactly {_counted(least)}" if least == most else f"{least} to {_counted(most)}"


def _counted(count: int) -> str:
    return "no argument" if not count else "one argument" if count == 1 else f"{count} arguments"


def _failure(message: str, place: SourceLocation) -> Compiled:
    def fail(_: Environment) -> Any:
        raise ExpressionError(message, place.text, place.position, place.function)

    return fail


# --- functions that evaluate all their arguments ----------------------------------------------------------------------


def _plain(call: Callable[..., Any], arguments: list[Compiled], place: SourceLocation) -> Compiled:
    """A function that wants nothing but its arguments."""
    match arguments:
        case [one]:
            return _plain_one(call, one, place)
        case [one, Constant(value=value)]:
            return _plain_and_constant(call, one, value, place)
        case [one, two]:
            return _plain_two(call, one, two, place)
        case _:
            return _plain_many(call, arguments, place)


def _plain_many(call: Callable[..., Any], arguments: list[Compiled], place: SourceLocation) -> Compiled:
    def many(env: Environment) -> Any:
        try:
            return call(*[argument(env) for argument in arguments])
        except FunctionError as error:
            raise place.error(str(error)) from error

    return many


def _plain_one(call: Callable[..., Any], one: Compiled, place: SourceLocation) -> Compiled:
    def unary(env: Environment) -> Any:
        try:
            return call(one(env))
        except FunctionError as error:
            raise place.error(str(error)) from error

    return unary


def _plain_two(call: Callable[..., Any], one: Compiled, two: Compiled, place: SourceLocation) -> Compiled:
    def binary(env: Environment) -> Any:
        try:
            return call(one(env), two(env))
        except FunctionError as error:
            raise place.error(str(error)) from error

    return binary


def _plain_and_constant(call: Callable[..., Any], one: Compiled, value: Any, place: SourceLocation) -> Compiled:
    def binary(env: Environment) -> Any:
        try:
            return call(one(env), value)
        except FunctionError as error:
            raise place.error(str(error)) from error

    return binary


def _asking(call: Callable[..., Any], arguments: list[Compiled], place: SourceLocation) -> Compiled:
    """A function that asks the environment."""
    if len(arguments) == 1 and isinstance(arguments[0], Constant):
        return _asking_constant(call, arguments[0].value, place)

    def ask(env: Environment) -> Any:
        try:
            return call(env, *[argument(env) for argument in arguments])
        except FunctionError as error:
            raise place.error(str(error)) from error

    return ask


def _asking_constant(call: Callable[..., Any], value: Any, place: SourceLocation) -> Compiled:
    def ask(env: Environment) -> Any:
        try:
            return call(env, value)
        except FunctionError as error:
            raise place.error(str(error)) from error

    return ask


def _forgiving(call: Callable[..., Any], argument: Compiled, place: SourceLocation) -> Compiled:
    def ask(env: Environment) -> Any:
        name = argument(env)
        if not isinstance(name, str):
            raise place.error(str(refuse("name", "a string", name)))
        try:
            return call(env, name)
        except FunctionError:  # The environment does not know the name, which is what this call forgives.
            return None

    return ask


# --- functions that evaluate only what they need ----------------------------------------------------------------------


def _if(arguments: list[Compiled], place: SourceLocation) -> Compiled:
    condition, if_true, if_false = arguments

    def choose(env: Environment) -> Any:
        test = condition(env)
        if test is True:
            return if_true(env)
        if test is False:
            return if_false(env)
        raise place.error(str(refuse("expression", "a boolean", test)))

    return choose


def _and(arguments: list[Compiled], place: SourceLocation) -> Compiled:
    def conjunction(env: Environment) -> bool:
        for argument in arguments:
            test = argument(env)
            if test is False:
                return False
            if test is not True:
                raise place.error(str(refuse("expression", "a boolean", test)))
        return True

    return conjunction


def _or(arguments: list[Compiled], place: SourceLocation) -> Compiled:
    def disjunction(env: Environment) -> bool:
        for argument in arguments:
            test = argument(env)
            if test is True:
                return True
            if test is not False:
                raise place.error(str(refuse("expression", "a boolean", test)))
        return False

    return disjunction


def _coalesce(arguments: list[Compiled], _: SourceLocation) -> Compiled:
    def first_of(env: Environment) -> Any:
        for argument in arguments:
            value = argument(env)
            if value is not None:
                return value
        return None

    return first_of


_LAZY: dict[str, Callable[[list[Compiled], SourceLocation], Compiled]] = {
    "if": _if,
    "and": _and,
    "or": _or,
    "coalesce": _coalesce,
}


# --- the allowance of runs from before budgets ------------------------------------------------------------------------

_UNITS_OF_AN_ELEMENT = 16


class _Allowance:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_TOTAL


_ALLOWANCE: ContextVar[_Allowance | None] = ContextVar("allowance of an evaluation", default=None)


def metered(call: Compiled, place: SourceLocation) -> Compiled:
    """A call that pays for its result, if there is an allowance to pay from."""

    def pay(env: Environment) -> Any:
        value = call(env)
        if isinstance(value, str | list | dict) and len(value) > FREE:
            allowance = _ALLOWANCE.get()
            if allowance is None:
                return value
            allowance.left -= len(value) * (1 if isinstance(value, str) else _UNITS_OF_AN_ELEMENT)
            if allowance.left < 0:
                message = "the expression builds too much: its calls together may make"
                raise ExpressionError(
                    f"{message} {MAX_TOTAL:,} characters or {MAX_TOTAL // _UNITS_OF_AN_ELEMENT:,} elements", *place
                )
        return value

    return pay


def with_allowance(evaluate: Compiled) -> Compiled:
    """An evaluation with an allowance of its own for its metered calls, where no budget holds."""

    def bounded(env: Environment) -> Any:
        counting = meter()
        if counting is not None and counting.counts:
            return evaluate(env)
        token = _ALLOWANCE.set(_Allowance())
        try:
            return evaluate(env)
        finally:
            _ALLOWANCE.reset(token)

    return bounded
