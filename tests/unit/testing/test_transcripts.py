"""The interpreter of transcripts."""

from __future__ import annotations

import pytest

from loom.core.commands import CommandCancelTimer
from loom.testing.transcript_session import Kinds, ScriptError, TranscriptSession, duration, parse, reference, value_of
from loom.testing.transcripts import execute, run_transcript

PLAN = "define plan StartEvent\nstart order-17"


def outcome(script: str) -> list[str]:
    """What the last block of a script led to."""
    return run_transcript(script).rpartition("----\n")[2].splitlines()


def test_transcript_holds_the_commands_a_rule_and_what_happened() -> None:
    text = run_transcript(f"# why\n{PLAN}\n----\nsomething else\n\nfinish plan#1 StopEvent\n")
    first, second = text.split("\n\n")
    assert first.splitlines()[:4] == ["# why", "define plan StartEvent", "start order-17", "----"]
    assert first.splitlines()[4].split("->")[1].strip() == "CommandRunWorker plan#1 attempt=1 seq=1"
    assert "something else" not in text
    assert second.splitlines()[-1].endswith("-> CommandCompleteRun StopEvent")


def test_rewriting_a_rewritten_transcript_changes_nothing() -> None:
    once = run_transcript(f"# why\n{PLAN}\n\nfail plan#1 Boom retry=1s; advance 2s\nstate\nstream")
    assert run_transcript(once) == once


def test_block_of_comments_stays_as_it_is() -> None:
    assert run_transcript("# only words\n") == "# only words\n"


def test_block_in_which_nothing_happens_says_ok() -> None:
    assert outcome("define plan StartEvent") == ["ok"]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("dance", "there is no verb 'dance'"),
        (f"{PLAN}\n\nfinish plan", "'plan' names no work: write it like plan#1"),
        (f"{PLAN}\n\nfinish plan#7", "plan#7 has never run"),
        (f"{PLAN}\n\nadvance soon", "'soon' is no time: write it like 2.5s"),
        (f"{PLAN}\n\nsleep plan#1", "sleep needs how long"),
        (f"{PLAN}\n\nendwait plan#1", "plan#1 waits for no such thing"),
        (f"{PLAN}\n\nrelease", "a run that is running is not released"),
        (f"{PLAN}\ncrash\n\nevent A", "no process holds the run: resume it"),
    ],
)
def test_command_without_sense_is_answered_with_an_error(script: str, error: str) -> None:
    assert outcome(script) == [f"error: {error}"]


def test_timers_fire_in_order_and_each_at_its_time() -> None:
    lines = outcome(f"{PLAN}\nwait plan#1 B timeout=5s child\nwait plan#1 B id=b timeout=2s child\n\nadvance 9s")
    assert [line.split()[1] for line in lines if "TickTimerFired" in line] == ["@2s", "@5s"]


def test_broken_state_is_told() -> None:
    session = TranscriptSession()
    for command in ("define plan StartEvent", "start order-17"):
        execute(session, command)
    session.check()
    assert not [line for line in session.out if line.startswith("BROKEN")]
    session._journal.pop()
    session.check()
    assert session.out[-1] == "BROKEN: the journal does not replay to the saved state"


def test_words_are_read() -> None:
    line = parse('event A n=1 text="a b" to=plan at=2.5s')
    assert (line.verb, line.words, line.fields()) == ("event", ["A"], {"n": 1, "text": "a b"})
    assert (line.seconds("at"), line.seconds("away"), line.options["to"]) == (2.5, None, "plan")
    assert (duration("2.5s"), value_of("true"), value_of("x"), reference("a#3")) == (2.5, True, "x", ("a", 3))
    with pytest.raises(ScriptError, match="needs a type"):
        parse("event").word(0, "a type")


def test_types_are_made_from_their_names() -> None:
    kinds = Kinds()
    kinds.define("Child", "Parent")
    assert kinds.of("Child").is_a(kinds.of("Parent").name)
    assert kinds.event("A:3").body == {"n": 3}
    assert kinds.counts("A:2,B") == (("t.A", 2), ("t.B", 1))


def test_step_is_made_from_its_line() -> None:
    spec = Kinds().step(parse("define pair L,R workers=0 join take=2 joins=a,b slots=x:L/y:R subclasses inputs=R"))
    assert (spec.accepts, spec.num_workers, spec.take) == (("t.L", "t.R"), 0, 2)
    assert (spec.joins, spec.slots) == (("a", "b"), (("x", ("t.L",)), ("y", ("t.R",))))
    assert (spec.collects, spec.accept_subclasses, spec.inputs) == (True, True, ("t.R",))


def test_cancelled_timer_does_not_fire() -> None:
    session = TranscriptSession()
    for command in ("define plan StartEvent", "start r", "wait plan#1 B timeout=5s", "event B"):
        execute(session, command)
    assert any(CommandCancelTimer.__name__ in line for line in session.out)
    session.out = []
    execute(session, "advance 9s")
    assert session.out == []
