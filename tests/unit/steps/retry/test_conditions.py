from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from loom.steps.retry import (
    RetryCondition,
    retry_all,
    retry_always,
    retry_any,
    retry_if_exception,
    retry_if_exception_cause_type,
    retry_if_exception_message,
    retry_if_exception_type,
    retry_if_not_exception_message,
    retry_if_not_exception_type,
    retry_never,
    retry_unless_exception_type,
)


def chained(*errors: Exception) -> Exception:
    """The last error, raised from the one before it, and so on."""
    for cause, error in pairwise(errors):
        error.__cause__ = cause
    return errors[-1]


def in_context() -> Exception:
    error = RuntimeError("outer")
    error.__context__ = KeyError("inner")
    return error


by_type = retry_if_exception_type(ValueError)
by_text = retry_if_exception_message(message="again")


@pytest.mark.parametrize(
    ("retry", "error", "expected"),
    [
        (retry_if_exception(lambda e: "x" in str(e)), Exception("x"), True),
        (retry_if_exception(lambda e: "x" in str(e)), Exception("y"), False),
        (retry_if_exception_type(), KeyboardInterrupt(), False),
        (retry_if_exception_type(), ValueError(), True),
        (retry_if_exception_type(OSError), ConnectionError(), True),
        (retry_if_exception_type((KeyError, ValueError)), TypeError(), False),
        (retry_if_exception_type(KeyError | ValueError), ValueError(), True),
        (retry_if_not_exception_type(ValueError), ValueError(), False),
        (retry_if_not_exception_type(ValueError), TypeError(), True),
        (retry_unless_exception_type((ValueError, KeyError)), KeyError(), False),
        (by_text, Exception("again"), True),
        (by_text, Exception("again!"), False),
        (retry_if_exception_message(message=""), Exception(), True),
        (retry_if_exception_message(match=r"HTTP 5\d\d"), Exception("got HTTP 503"), True),
        (retry_if_exception_message(match=re.compile("busy", re.I)), Exception("BUSY"), True),
        (retry_if_exception_message(match="busy"), Exception("BUSY"), False),
        (retry_if_not_exception_message(message="no"), Exception("no"), False),
        (retry_if_not_exception_message(match="no"), Exception("yes"), True),
        (retry_if_exception_cause_type(KeyError), chained(KeyError(), RuntimeError(), OSError()), True),
        (retry_if_exception_cause_type(KeyError), chained(ValueError(), RuntimeError()), False),
        (retry_if_exception_cause_type(KeyError), KeyError(), False),
        (retry_if_exception_cause_type(KeyError), in_context(), False),
        (retry_always(), Exception(), True),
        (retry_never(), Exception(), False),
        (retry_any(), Exception(), False),
        (retry_all(), Exception(), True),
        (by_type | by_text, ValueError("other"), True),
        (by_type | by_text, TypeError("again"), True),
        (by_type | by_text, TypeError("other"), False),
        (by_type & by_text, ValueError("again"), True),
        (by_type & by_text, ValueError("other"), False),
        (retry_never() | by_type | by_text, TypeError("again"), True),
    ],
)
def test_which_errors_are_tried_again(retry: RetryCondition, error: Exception, expected: bool) -> None:
    assert retry(error) is expected


def test_a_ring_of_causes_ends() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert retry_if_exception_cause_type(KeyError)(one) is False


def test_a_plain_function_combines_on_either_side() -> None:
    def is_key_error(error: BaseException) -> bool:
        return isinstance(error, KeyError)

    assert (is_key_error | retry_never())(KeyError()) is True
    assert (retry_never() | is_key_error)(KeyError()) is True
    assert (is_key_error & retry_never())(KeyError()) is False
    assert (retry_always() & is_key_error)(ValueError()) is False


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (retry_if_exception_message, "missing 1 required argument 'message' or 'match'"),
        (lambda: retry_if_exception_message("a", "b"), "takes either 'message' or 'match', not both"),
        (retry_if_not_exception_message, r"retry_if_not_exception_message\(\) missing"),
        (lambda: retry_if_exception_message(message=5), "retry_if_exception_message: message must be a string, got 5"),
        (lambda: retry_if_exception_message(match=5), "match must be a regular expression, got 5"),
        (lambda: retry_if_exception_type("ValueError"), "retry_if_exception_type: exception_types must be an excep"),
        (lambda: retry_if_exception_cause_type([KeyError]), "retry_if_exception_cause_type: exception_types must be"),
        (lambda: retry_if_exception(None), "retry_if_exception: predicate must be callable, got None"),
        (lambda: by_type | KeyError, r"a condition is the class KeyError; pass retry_if_exception_type\(...\)"),
        (lambda: 3 & by_type, "retry_all: a condition must be callable, got 3"),
    ],
)
def test_nonsense_is_refused_by_name(build: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        build()
