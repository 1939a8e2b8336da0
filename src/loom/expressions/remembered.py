"""A cache of what functions make of texts, bounded in size as well as in number.

Texts come from authors and callers. A cache that counts entries alone would keep the largest thousand of them.
"""

from __future__ import annotations

from functools import lru_cache, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


class Remembered(Generic[P, R]):
    """A function of a text that remembers its last results, unless the text is long."""

    def __init__(self, function: Callable[Concatenate[str, P], R], most: int, longest: int) -> None:
        self._function = function
        self._longest = longest
        self._cached = cast("Any", lru_cache(maxsize=most)(function))
        update_wrapper(self, function)

    def __call__(self, text: str, *args: P.args, **kwargs: P.kwargs) -> R:
        """Give what was remembered for these arguments. A long text is worked out anew each time."""
        call: Callable[Concatenate[str, P], R] = self._cached if len(text) <= self._longest else self._function
        return call(text, *args, **kwargs)

    def cache_clear(self) -> None:
        """Forget all results."""
        self._cached.cache_clear()


def remembered(most: int, longest: int = 256) -> Callable[[Callable[Concatenate[str, P], R]], Remembered[P, R]]:
    """Remember the last `most` results of a function, by texts of up to `longest` characters."""
    return lambda function: Remembered(function, most, longest)
