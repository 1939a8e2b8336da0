# The class names are the public API that Loom keeps.
# ruff: noqa: N801
"""Retry conditions: which errors are worth another try. They combine with `|` and `&`.

May import `checks` only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from loom.steps.retry.checks import Described, parts

if TYPE_CHECKING:
    from collections.abc import Callable

ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]


class RetryCondition(Protocol):
    """Decides whether an error is worth another try."""

    def __call__(self, error: BaseException) -> bool:
        """Return true to try again."""
        ...


class _Condition(Described):
    """Base of the built-in conditions: `a | b` takes either, `a & b` needs both."""

    def __call__(self, error: BaseException) -> bool:
        raise NotImplementedError

    def __or__(self, other: RetryCondition) -> retry_any:
        return retry_any(self, other)

    def __ror__(self, other: RetryCondition) -> retry_any:
        return retry_any(other, self)

    def __and__(self, other: RetryCondition) -> retry_all:
        return retry_all(self, other)

    def __rand__(self, other: RetryCondition) -> retry_all:
        return retry_all(other, self)


class retry_if_exception(_Condition):
    """Retry if the predicate says so."""

    def __init__(self, predicate: Callable[[BaseException], bool]) -> None:
        parts(type(self).__name__, "predicate", (predicate,))
        self.predicate = predicate

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return self.predicate(error)


class retry_if_exception_type(retry_if_exception):
    """Retry errors of the given types."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        self.exception_types = _types(self, exception_types)
        super().__init__(lambda error: isinstance(error, exception_types))


class retry_if_not_exception_type(retry_if_exception):
    """Retry all errors but those of the given types."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        self.exception_types = _types(self, exception_types)
        super().__init__(lambda error: not isinstance(error, exception_types))


class retry_unless_exception_type(retry_if_not_exception_type):
    """Retry all errors but those of the given types: `retry_if_not_exception_type` under its other name."""


class retry_if_exception_message(_Condition):
    """Retry errors whose text equals `message`, or in which the pattern `match` is found."""

    def __init__(self, message: str | None = None, match: str | re.Pattern[str] | None = None) -> None:
        owner = type(self).__name__
        if message is None and match is None:
            raise TypeError(f"{owner}() missing 1 required argument 'message' or 'match'")
        if message is not None and match is not None:
            raise TypeError(f"{owner}() takes either 'message' or 'match', not both")
        if not isinstance(message, str | None):
            raise TypeError(f"{owner}: message must be a string, got {message!r}")
        if not isinstance(match, str | re.Pattern | None):
            raise TypeError(f"{owner}: match must be a regular expression, got {match!r}")
        self.message = message
        self.match = match
        self._pattern = None if match is None else re.compile(match)

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        text = str(error)
        return text == self.message if self._pattern is None else self._pattern.search(text) is not None


class retry_if_not_exception_message(retry_if_exception_message):
    """Retry errors whose text is not `message`, or in which the pattern `match` is not found."""

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return not super().__call__(error)


class retry_if_exception_cause_type(_Condition):
    """Retry errors raised `from` one of the given types, at any depth; the implicit `__context__` does not count."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        self.exception_types = _types(self, exception_types)

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        seen: set[int] = set()
        cause = error.__cause__
        # A chain of causes may be a ring.
        while cause is not None and id(cause) not in seen:
            if isinstance(cause, self.exception_types):
                return True
            seen.add(id(cause))
            cause = cause.__cause__
        return False


class retry_any(_Condition):
    """Retry if any of the conditions holds."""

    def __init__(self, *retries: RetryCondition) -> None:
        parts("retry_any", "a condition", retries)
        self.retries = retries

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return any(retry(error) for retry in self.retries)


class retry_all(_Condition):
    """Retry if all of the conditions hold."""

    def __init__(self, *retries: RetryCondition) -> None:
        parts("retry_all", "a condition", retries)
        self.retries = retries

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return all(retry(error) for retry in self.retries)


class retry_always(_Condition):
    """Retry every error."""

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return True


class retry_never(_Condition):
    """Retry no error."""

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return False


def _types(condition: _Condition, exception_types: Any) -> Any:
    """Refuse what `isinstance` cannot be asked about, while the author is looking."""
    try:
        isinstance(None, exception_types)
    except TypeError:
        owner = type(condition).__name__
        raise TypeError(
            f"{owner}: exception_types must be an exception class or a tuple of them, got {exception_types!r}"
        ) from None
    return exception_types
