from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_rig import ORDER, STORE, data, failure, good, loom, started, until_end, until_idle, wait_for, working

from loom.cli.targets import named_workflow
from loom.core.state import BrokerState
from loom.runtime.connect import connect

pytestmark = pytest.mark.usefixtures("shop")


def result_of(run_id: str) -> object:
    return data("workflow", "events", run_id)[-1]["value"]["result"]


def test_starts_a_run_that_an_engine_recovers() -> None:
    good("db", "upgrade")
    assert good("workflow", "start", "Double", '{"number": 21}', "--run-id", "d") == "Run d of Double is stored.\n"
    until_end("d")
    assert result_of("d") == 42


def test_code_of_another_name_is_not_left_out_silently() -> None:
    good("db", "upgrade")
    message = failure(2, "workflow", "start", "order", "--target", "shop.py:Order")
    assert message == "No --target is named 'order', but Order, shop.Order: use --target order=TARGET."
    good("workflow", "start", "order", "--target", "order=shop.py:Order")


def test_the_same_start_again_is_the_same_run_and_another_one_is_refused() -> None:
    good("db", "upgrade")
    first = ["workflow", "start", "Double", '{"number": 21}', "--run-id", "d"]
    good(*first)
    assert data(*first) == {"run_id": "d", "workflow": "Double"}
    assert "exists already, with another input" in failure(1, *first[:3], '{"number": 1}', *first[4:])


def test_sends_an_event_of_a_type_that_the_run_waits_for_without_its_code() -> None:
    started("order-1")
    sent = good("workflow", "send", "order-1", "Approval", '{"amount": 5, "note": "fine"}')
    assert sent == "Approval is stored for run order-1.\n"
    until_end("order-1")
    assert result_of("order-1") == {"amount": 5, "note": "fine"}


@pytest.mark.parametrize("name", ["loom.flows.ActorReply", "workflows.events.StepFailedEvent"])
def test_nobody_sends_an_event_of_the_engine(name: str) -> None:
    started("order-1")
    message = failure(1, "workflow", "send", "order-1", name, '{"key": "k"}', "--target", ORDER)
    assert message == f"{name} is an event of the engine: nobody sends it from outside."


def test_sends_an_event_with_its_code_by_its_full_name(shop: Path) -> None:
    started("order-1")
    (shop / "fields.json").write_text('{"amount": 6}')
    sent = data("workflow", "send", "order-1", "shop.Approval", "@fields.json", "--target", ORDER, "--event-id", "e")
    assert sent == {
        "run_id": "order-1",
        "sent": "shop.Approval",
        "event_id": "e",
        "delivered": "inbox",
        "duplicate": False,
    }
    until_end("order-1")
    assert result_of("order-1") == {"amount": 6, "note": ""}


def test_fields_from_the_standard_input() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", "@-", text='{"amount": 7}')
    until_end("order-1")
    assert result_of("order-1") == {"amount": 7, "note": ""}


def test_an_event_id_makes_a_repeated_event_a_success_also_after_the_end() -> None:
    started("order-1")
    send = ["workflow", "send", "order-1", "Approval", '{"amount": 5}']
    good(*send, "--event-id", "e")
    good(*send, "--event-id", "e")
    until_end("order-1")
    good(*send, "--event-id", "e")
    assert "has ended (completed): it takes no event any more" in failure(1, *send, "--event-id", "other")
    assert sum("Approval(" in line for line in good("workflow", "history", "order-1").splitlines()) == 1


def test_an_event_that_nobody_asked_for_is_refused_with_what_is_asked_for() -> None:
    started("order-1")
    message = failure(1, "workflow", "send", "order-1", "Aproval", "{}")
    assert "neither waits for Aproval nor has a step that takes it. It waits for shop.Approval." in message
    assert "--target" in message


LEVELS = """
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step

class Signed(HumanResponseEvent):
    by: str
    level: int = 1

class Levels(Workflow):
    @step
    async def sign(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Signed, requirements={"level": 1}, timeout=None)).by)
"""


def test_what_a_waiter_requires_and_does_not_get_is_told(shop: Path) -> None:
    (shop / "levels.py").write_text(LEVELS)
    good("db", "upgrade")
    with working(shop, "levels.py:Levels"):
        good("workflow", "start", "Levels", "--run-id", "one")
        wait_for("Signed")
        sent = good("workflow", "send", "one", "Signed", '{"by": "Ada"}')
        assert sent == "Signed is stored for run one. Now it waits for one with level=1.\n"
        sent = good("workflow", "send", "one", "Signed", '{"by": "Bob", "level": 1}')
        assert sent == "Signed is stored for run one.\n"
        assert "Bob" in good("workflow", "events", "one", "--follow")


def test_fields_are_checked_where_the_code_is_at_hand() -> None:
    started("order-1")
    message = failure(2, "workflow", "send", "order-1", "Approval", '{"amount": "x"}', "--target", ORDER)
    assert message.startswith("This is no Approval: amount: ")
    until_idle("order-1")
    assert data("workflow", "list", "--waiting-for", "Approval")


def test_a_run_that_has_not_begun_does_not_know_its_types_yet() -> None:
    good("db", "upgrade")
    good("workflow", "start", "Order", "--run-id", "order-1")
    assert "name its code with --target" in failure(1, "workflow", "send", "order-1", "Approval", "{}")
    good("workflow", "send", "order-1", "Approval", '{"amount": 3}', "--target", ORDER)
    until_end("order-1")
    assert result_of("order-1") == {"amount": 3, "note": ""}


def test_a_workflow_with_a_serializer_of_its_own_needs_its_code(shop: Path) -> None:
    (shop / "secret.py").write_text(
        "import base64\n"
        "from loom import HumanResponseEvent, Context, StartEvent, StopEvent, Workflow, step\n"
        "from loom.steps.serializers import JsonSerializer\n"
        "class Hidden(JsonSerializer):\n"
        "    def serialize(self, value):\n"
        "        return base64.b64encode(super().serialize(value).encode()).decode()\n"
        "    def deserialize(self, text):\n"
        "        return super().deserialize(base64.b64decode(text).decode())\n"
        "class Answer(HumanResponseEvent):\n"
        "    number: int\n"
        "class Asks(Workflow):\n"
        "    @step\n"
        "    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:\n"
        "        return StopEvent(result=(await ctx.wait_for_event(Answer)).number)\n"
        "asks = Asks(serializer=Hidden())\n"
    )
    with working(shop, "asks=secret.py:asks"):
        good("workflow", "start", "asks", "--run-id", "a", "--target", "asks=secret.py:asks")
        wait_for("Answer")
        send = ["workflow", "send", "a", "Answer", '{"number": 4}']
        assert "in a form of its own: name its code with --target" in failure(1, *send)
        good(*send, "--target", "asks=secret.py:asks")
        good("workflow", "events", "a", "--follow")
        assert data("workflow", "status", "a")["status"] == "completed"


@pytest.mark.parametrize("text", ["[1]", "{", "5", "@missing.json"])
def test_fields_that_are_no_json_object(text: str) -> None:
    result = loom("workflow", "send", "order-1", "Approval", text)
    assert result.exit_code == 2
    assert "Error: Invalid value for '[JSON]'" in result.stderr


def test_cancel_pause_resume_and_retry() -> None:
    started("order-1")
    assert good("workflow", "pause", "order-1") == "Run order-1 was asked to pause.\n"
    until_idle("order-1")
    assert data("workflow", "status", "order-1")["paused"]
    assert data("workflow", "resume", "order-1") == {"run_id": "order-1", "asked": "resume"}
    asked = data("runs", "resume", "order-1", "--max-depth", "20000")
    assert asked == {"run_id": "order-1", "asked": "resume", "max_depth": 20000}
    good("workflow", "send", "order-1", "Approval", '{"amount": -1}')
    until_end("order-1")
    assert data("workflow", "status", "order-1")["status"] == "failed"
    assert "resume was asked for, with a max_depth of 20000" in good("workflow", "history", "order-1")
    good("workflow", "retry", "order-1")
    assert data("workflow", "status", "order-1")["status"] == "running"
    good("workflow", "cancel", "order-1")
    until_end("order-1")
    assert data("workflow", "status", "order-1")["status"] == "cancelled"


def test_a_higher_depth_is_for_one_run() -> None:
    assert "--max-depth is for one RUN_ID." in loom("runs", "resume", "--parked", "--max-depth", "5").stderr
    assert "0 is not in the range x>=1" in loom("runs", "resume", "order-1", "--max-depth", "0").stderr


def test_cancel_at_once() -> None:
    started("order-1")
    assert "name its RUN_ID" in failure(2, "runs", "cancel", "--force", "--status", "running")
    assert data("runs", "cancel", "order-1", "--force") == {"run_id": "order-1", "asked": "cancel", "force": True}
    until_end("order-1")
    assert "cancel was asked for, at once" in good("runs", "history", "order-1")


def test_fork_with_changes() -> None:
    started("order-1")
    fork = ("runs", "fork", "order-1", "--tick")
    tick = data("runs", "status", "order-1").get("tick", 1)
    made = ("--run-id", "f", "--set", "note.a=5", "--event", "Approval", '{"amount": 7}')
    good(*fork, str(tick), *made)
    until_end("f")
    assert result_of("f") == {"amount": 7, "note": ""}
    assert "store edited by outside: note" in good("runs", "history", "f")
    assert "Another input needs a fork at tick 0" in failure(1, *fork, "1", "--input", "{}")
    assert "is not known here" in failure(1, *fork, "0", "--input", "{}")
    good(*fork, "0", "--run-id", "g", "--input", '{"item": "coffee"}', "--target", ORDER)
    until_idle("g")
    assert data("runs", "events", "g")[0]["value"]["item"] == "coffee"
    assert "is no edit: use PATH=JSON" in loom(*fork, "1", "--set", "x").stderr


NAP = {
    "actions": {"nap": {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}}},
}


def test_skip_ends_a_delay() -> None:
    good("db", "upgrade")
    Path("nap.json").write_text(json.dumps(NAP))
    good("workflow", "start", "nap.json", "--run-id", "n")
    asyncio.run(napped(lambda state: state.timers))
    [timer] = data("workflow", "status", "n")["timers"]
    assert timer["skippable"]
    refused = failure(1, "workflow", "skip", "n", "--timer", "999")
    assert refused == f"Run 'n' has nothing to skip: timer 999 is none that can be skipped, which are {timer['timer']}."
    assert good("runs", "skip", "n", "--timer", str(timer["timer"])) == (
        f"Run n was asked to skip timer {timer['timer']}.\n"
    )
    assert data("runs", "skip", "n") == {"run_id": "n", "asked": "skip", "timer": None}
    asyncio.run(napped(lambda state: state.outcome))
    assert f"timer {timer['timer']} was skipped" in good("workflow", "history", "n")
    assert "has ended (completed)" in failure(1, "runs", "skip", "n")


async def napped(is_enough: Callable[[BrokerState], object]) -> None:
    """Work for the flow until its run is so far."""
    name, flow = named_workflow("nap.json")
    async with asyncio.timeout(60), connect(STORE) as runtime:
        runtime.register(flow, name=name)
        while not is_enough(await runtime.state_at("n")):  # noqa: ASYNC110 - a store is asked, and tells nobody
            await asyncio.sleep(0.005)


def test_a_wrong_answer_through_the_store_is_refused_and_shown_and_the_right_one_is_taken() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"note": "hush"}')
    until_idle("order-1")
    found = data("workflow", "status", "order-1")
    assert (found["status"], found["error"]) == ("running", None)
    [refused] = found["refused"]
    assert (refused["step"], refused["event_type"], refused["reason"]) == (
        "place",
        "Approval",
        "amount: Field required",
    )
    assert found["active_waiters"][0]["refused"] == refused
    page = good("workflow", "status", "order-1")
    assert "Refused events" in page
    assert "amount: Field required" in page
    told = good("workflow", "history", "order-1")
    assert "place#1 refused Approval: amount: Field required" in told
    assert "hush" in told  # the event is where it came
    assert "Approval for place was refused: amount: Field required" in good("workflow", "events", "order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    until_end("order-1")
    assert result_of("order-1") == {"amount": 5, "note": ""}


def test_a_wrong_answer_with_its_code_is_not_sent() -> None:
    started("order-1")
    send = ("workflow", "send", "order-1", "Approval", '{"note": "x"}', "--target", ORDER)
    assert failure(2, *send) == "This is no Approval: amount: Field required."


def test_retry_with_another_event() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": -1}')
    until_end("order-1")
    retry = ("workflow", "retry", "order-1", "--event")
    assert failure(1, *retry, "Note", "{}") == (
        "Run 'order-1' failed in step 'place', and no Note did that: it had Approval, StartEvent."
    )
    assert failure(2, *retry, "Approval", "{}", "--target", ORDER) == "This is no Approval: amount: Field required."
    assert good(*retry, "Approval", '{"amount": 3}') == "Run order-1 was asked to retry with Approval.\n"
    until_end("order-1")
    assert "retry was asked for, with Approval(amount=3)" in good("workflow", "history", "order-1")
    assert result_of("order-1") == {"amount": 3, "note": ""}


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "retry"])
def test_what_a_finished_run_cannot_do_any_more(command: str) -> None:
    good("run", "shop.py:Double", "--run-id", "d")
    assert "Run 'd' has ended (completed): " in failure(1, "workflow", command, "d")


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["events"],
        ["events", "--follow"],
        ["history"],
        ["replay"],
        ["send", "Approval"],
        ["cancel"],
        ["pause"],
        ["resume"],
        ["retry"],
        ["fork", "--tick", "0"],
        ["tag", "team=x"],
        ["export"],
        ["purge"],
    ],
)
def test_an_unknown_run_is_named(command: list[str]) -> None:
    good("db", "upgrade")
    name, *rest = command
    assert failure(1, "workflow", name, "nobody", *rest) == "Run 'nobody' was not found."


def test_tags_a_run_and_lists_it_by_new_filters() -> None:
    started("order-1")
    made = data("runs", "tag", "order-1", "env=prod", "team=y")
    assert made == {"run_id": "order-1", "tags": {"team": "y", "env": "prod"}}
    assert [run["run_id"] for run in data("runs", "list", "--tag", "team=y")] == ["order-1"]
    assert data("runs", "tag", "order-1", "--remove", "team")["tags"] == {"env": "prod"}
    assert data("runs", "list", "--tag", "team=y") == []
    for found in (("--id-prefix", "order"), ("--updated-after", "1d"), ("--order", "-updated_at"), ("--not-asleep",)):
        assert [run["run_id"] for run in data("runs", "list", *found)] == ["order-1"]
    for none in (("--id-prefix", "x"), ("--created-before", "1d"), ("--asleep",), ("--not-waiting",)):
        assert data("runs", "list", *none) == []
    assert "NAME=VALUE" in failure(2, "runs", "tag", "order-1")
    assert data("runs", "counts")["total"] == 1
    assert isinstance(data("runs", "workers"), list)
    assert data("runs", "counts", "--workflow", "none")["workflows"] == []
    assert good("runs", "counts").splitlines()[-1].split()[:2] == ["all", "1"]


def test_forks_a_run() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    until_end("order-1")
    made = data("workflow", "fork", "order-1", "--tick", "1", "--run-id", "order-2")
    assert made == {"run_id": "order-2", "forked_from": "order-1", "tick": 1}
    good("workflow", "send", "order-2", "Approval", '{"amount": 6}')
    until_end("order-2")
    assert result_of("order-2") == {"amount": 6, "note": ""}
    assert "there is no tick 50" in failure(1, "workflow", "fork", "order-1", "--tick", "50")
    again = failure(1, "workflow", "fork", "order-1", "--tick", "1", "--run-id", "order-2")
    assert "exists already" in again


def test_exports_and_imports_a_run(shop: Path) -> None:
    started("order-1")
    good("workflow", "export", "order-1", "-o", "run.json")
    kept, printed = (
        json.loads(text) for text in ((shop / "run.json").read_bytes(), good("workflow", "export", "order-1"))
    )
    for exported in (kept, printed):
        del exported["at"]  # when it was exported
    assert kept == printed
    other = ["--store", "sqlite:///other.db"]
    good("db", "upgrade", *other)
    assert good("workflow", "import", "run.json", *other) == "Run order-1 is stored.\n"
    assert good("workflow", "history", "order-1", *other) == good("workflow", "history", "order-1")
    assert "exists already" in failure(1, "workflow", "import", "run.json")


def test_something_else_is_not_imported(shop: Path) -> None:
    good("db", "upgrade")
    (shop / "run.json").write_text('{"no": "run"}')
    assert "not an exported run" in failure(1, "workflow", "import", "run.json")


def test_purges_ended_runs_only() -> None:
    started("order-1")
    good("run", "shop.py:Double", "--run-id", "d-1")
    good("run", "shop.py:Double", "--run-id", "d-2")
    assert "cancel it before you purge it" in failure(1, "workflow", "purge", "order-1")
    assert good("workflow", "purge", "d-1") == "1 run was deleted.\n"
    assert data("workflow", "purge", "--ended-before", "1d", "--yes") == {"purged": 0}
    assert loom("workflow", "purge", "--ended-before", "0s", text="n\n").exit_code == 1
    assert data("workflow", "purge", "--ended-before", "0s", "--yes") == {"purged": 1}
    assert [run["run_id"] for run in data("workflow", "list")] == ["order-1"]


def test_purge_needs_to_know_what() -> None:
    assert "Name a RUN_ID" in loom("workflow", "purge").stderr
    assert loom("workflow", "purge", "x", "--ended-before", "1d").exit_code == 2
