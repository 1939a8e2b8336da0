"""Where an exception was raised, as text: what it says, in which order, and what it never says."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from loom.api.attempts import place_of
from loom.effects.exceptions import MAX_BYTES, has_other_frames, stack_text, traceback_text


def caught(work: Any) -> BaseException:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - a group may hold anything
        return error
    raise AssertionError("It did not fail.")


def _inner() -> None:
    secret_value = "value of a local"
    raise KeyError(len(secret_value))


def _outer() -> None:
    _inner()


def test_the_innermost_frame_of_the_author_comes_first() -> None:
    lines = traceback_text(caught(_outer)).splitlines()
    assert lines[0] == "KeyError: 16"
    assert lines[1].startswith(f'  File "{__file__}", line ')
    assert lines[1].endswith(", in _inner")
    assert lines[2] == "    raise KeyError(len(secret_value))"
    assert lines[3].endswith(", in _outer")
    assert "value of a local" not in "\n".join(lines).replace('secret_value = "value of a local"', "")


def test_frames_of_libraries_come_after_the_authors() -> None:
    text = traceback_text(caught(lambda: json.loads("{")))
    place = place_of(text)
    assert place is not None
    assert (place.file, place.source) == (__file__, 'text = traceback_text(caught(lambda: json.loads("{")))')
    assert text.index("In libraries:") < text.index("decoder.py")


def test_causes_contexts_notes_and_groups_are_told() -> None:
    def work() -> None:
        try:
            _inner()
        except KeyError as error:
            error.add_note("a note")
            try:
                raise ValueError("second") from error
            except ValueError:
                members = [OSError("left"), TypeError("right")]
                raise ExceptionGroup("both", members)  # noqa: B904 - the context is wanted

    text = traceback_text(caught(work))
    told = ["ExceptionGroup: both (2 sub-exceptions)", "Exception 1 of 2:", "OSError: left", "TypeError: right"]
    told += ["While handling ValueError: second", "Caused by KeyError: 16\na note\n"]
    positions = [text.index(each) for each in told]
    assert positions == sorted(positions)


def test_a_suppressed_context_is_left_out_and_a_circle_ends() -> None:
    def work() -> None:
        try:
            _inner()
        except KeyError:
            raise ValueError("alone") from None

    assert "KeyError" not in traceback_text(caught(work))
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert traceback_text(first) == "ValueError: first\nCaused by ValueError: second"


@pytest.mark.parametrize("limit", [4 * 1024, MAX_BYTES])
def test_a_long_text_is_cut_at_its_end(limit: int) -> None:
    def work() -> None:
        try:
            _dig(900)
        except ValueError as error:
            raise RuntimeError("\U0001f9f5" * 50_000) from error

    text = traceback_text(caught(work), limit)
    assert len(text.encode()) <= limit
    place = place_of(text)
    assert place is not None
    assert place.function == "work"


def _dig(depth: int) -> None:
    if not depth:
        raise ValueError("the deepest")
    _dig(depth - 1)


def test_a_function_that_calls_itself_is_told_once() -> None:
    text = traceback_text(caught(lambda: _dig(900)))
    assert text.count("(repeated 899 more times)") == 1
    assert len(text) < 1_000


@pytest.mark.parametrize(
    ("message", "secret"),
    [
        ("loom_0123456789ab_" + "s" * 43, "s" * 43),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("postgresql://ada:hunter2@db/x", "hunter2"),
        ('{"api_key": "hunter2"}', "hunter2"),
        ("https://x.org/?sig=hunter2&a=1", "hunter2"),
    ],
)
def test_credentials_are_masked_in_messages(message: str, secret: str) -> None:
    text = traceback_text(ValueError(message))
    assert secret not in text
    assert "***" in text


def test_a_credential_at_the_cut_is_masked() -> None:
    key = "loom_0123456789ab_" + "s" * 43
    for before in range(1980, 2060):
        assert "ssss" not in traceback_text(ValueError("x" * before + " " + key))


def test_credentials_are_masked_in_source_lines() -> None:
    def connect(*, password: str) -> None:
        raise OSError("refused")

    text = traceback_text(caught(lambda: connect(password="hunter2")))
    assert 'connect(password="***")' in text
    assert "hunter2" not in text


def test_messages_and_notes_can_be_hidden() -> None:
    error = caught(_inner)
    error.__cause__ = ValueError("told")
    error.add_note("a note")
    text = traceback_text(error, hide_messages=True)
    assert "KeyError: (hidden" in text
    assert "Caused by ValueError: (hidden" in text
    assert not [word for word in ("told", "a note", "16") if word in text.replace("line 16", "")]


def test_a_text_that_raises_is_said_so() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert "(its text cannot be shown: RuntimeError)" in traceback_text(Odd())
    error = ValueError("a note that is none")
    error.__notes__ = [Odd()]  # type: ignore[attr-defined]
    assert traceback_text(error) == "ValueError: its traceback cannot be written (RuntimeError)"


def test_a_large_group_is_cut() -> None:
    group = ExceptionGroup("many", [ValueError(str(number)) for number in range(1_000)])
    lines = traceback_text(group).splitlines()
    assert lines[-1] == "  … 971 more exceptions"


def test_an_exception_of_the_engine_alone_is_known() -> None:
    from loom.effects.context_calls import seconds

    assert has_other_frames(caught(_inner))
    error = caught(lambda: seconds("sleep()", "soon"))
    assert has_other_frames(error)  # this test called it
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    assert not has_other_frames(error)
    assert "context_calls.py" in traceback_text(error)  # better than nothing
    error.__cause__ = caught(_inner)
    place = place_of(traceback_text(error))
    assert place is not None
    assert (place.file, place.function) == (__file__, "_inner")


def test_a_frame_without_a_source_line_has_a_place_too() -> None:
    text = traceback_text(caught(lambda: exec(compile("1 / 0", "<made up>", "exec"), {})))
    place = place_of(text)
    assert place is not None
    assert (place.file, place.line, place.source) == ("<made up>", 1, "")
    last = place_of('ValueError: no\n  File "<stdin>", line 3, in work')
    assert last is not None
    assert (last.file, last.function, last.source) == ("<stdin>", "work", "")


def test_a_frame_between_two_lines_is_written_too() -> None:
    """Python gives no number for code that it made itself; the watchdog may look at any moment."""

    def between() -> str:
        return stack_text(sys._getframe())

    first = between.__code__.co_firstlineno
    between.__code__ = between.__code__.replace(co_linetable=b"")
    assert f"line {first}, in between" in between()
