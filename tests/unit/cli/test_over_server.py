"""Commands over a server do, say and refuse what they do over the store that the server works on."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_rig import STORE, data, failure, good, loom
from server_rig import Serving

from loom.api.refusals import Place, Problem
from loom.cli.problems import WrongUse
from loom.cli.server_runs import told_by_server
from loom.client.errors import ClientError

APPROVED = ("Approval", '{"amount": 5}')


@pytest.fixture
def server(flows: Path) -> Iterator[Serving]:
    with Serving().running() as found:
        yield found


@pytest.fixture
def shown(server: Serving) -> Serving:
    """A server with runs of all sorts: one that waits, one that is done, one that has failed, two flows."""
    server.begun("order-1", "Order", '{"item": "tea"}', "--tag", "size=big")
    server.begun("order-2")
    server.good("workflow", "send", "order-2", "Approval", '{"amount": -1}')
    server.good("workflow", "start", "Double", '{"number": 21}', "--run-id", "double-1")
    server.begun("n", "nested")
    server.good("workflow", "send", "n", "Go", "--data", "1")
    server.begun("s", "secret", "--parameter", "key=hush")
    server.good("workflow", "send", "s", "Answer", "--data", '"yes"')
    server.good("schedule", "create", "nightly", "Double", "--cron", "0 2 * * *", "--input", '{"number": 4}')
    server.until("order-2", "failed")
    server.until("double-1", "completed")
    server.until("s", "completed")
    while server.data("workflow", "status", "n")["loops"][1]["iteration"] != 1:
        pass
    return server


COMMANDS = [
    ["workflow", "list"],
    ["workflow", "status", "order-1"],
    ["workflow", "status", "order-1", "--tick", "0"],
    ["workflow", "status", "order-2"],
    ["workflow", "status", "double-1"],
    ["workflow", "status", "n", "--actions"],
    ["workflow", "status", "n", "--tick", "0"],
    ["workflow", "status", "s", "--actions"],
    ["workflow", "events", "order-1"],
    ["workflow", "events", "order-2", "--all"],
    ["workflow", "events", "order-2", "--follow", "--after", "1"],
    ["workflow", "events", "s", "--all"],
    ["workflow", "events", "n"],
    ["workflow", "events", "n", "--after", "1000"],
    ["workflow", "history", "order-2"],
    ["workflow", "history", "s"],
    ["workflow", "history", "n", "--start", "1", "--limit", "2"],
    ["workflow", "replay", "order-2"],
    ["workflow", "replay", "s"],
    ["schedule", "list"],
    ["schedule", "show", "nightly"],
]


FILTERS = [
    (["--status", "running", "--idle"], 2),
    (["--not-idle", "--workflow", "Double"], 1),
    (["--waiting-for", "Approval", "--tag", "size=big"], 1),
    (["--idle-longer-than", "1h"], 0),
    (["--paused"], 0),
    (["--stuck"], 0),
    (["--not-stuck", "--waiting-for", "Approval"], 1),
    (["--not-parked", "--limit", "2"], 2),
    (["--parent", "order-1"], 0),
]


def test_commands_print_the_same_over_both(shown: Serving) -> None:
    for command in COMMANDS:
        store, server = (_ageless(text) for text in shown.both(*command))
        assert store == server, command
        if "--follow" not in command:
            store, server = shown.both_data(*command)
            # In lists, only who holds a run in memory knows its timers.
            less = {"duration", "next_timer_at"} if "list" in command else {"duration"}
            assert _without(less, store) == _without(less, server), command
    assert "hush" not in "".join(shown.good(*command) for command in COMMANDS if "s" in command)
    for filters, count in FILTERS:
        store, server = ([run["run_id"] for run in runs] for runs in shown.both_data("workflow", "list", *filters))
        assert store == server, filters
        assert len(store) == count, filters
        assert len(good("workflow", "list", *filters, "--store", STORE).splitlines()) == (count + 2 if count else 1)


def test_why_is_the_same_over_both(shown: Serving) -> None:
    for run_id, kind in (("order-1", "waiter"), ("order-2", "ended"), ("n", "waiter")):
        store, server = (_without({"at", "sentence"}, found) for found in shown.both_data("why", run_id))
        assert store == server, run_id
        assert store["kind"] == kind, run_id


def test_the_timeline_is_the_same_over_both(shown: Serving) -> None:
    for run_id in ("order-1", "order-2", "n"):
        store, server = (_without({"end"}, found) for found in shown.both_data("runs", "timeline", run_id))
        assert store == server, run_id
        assert store["lanes"], run_id


def _ageless(text: str) -> str:
    """Without what passes between two looks, and the width of columns that comes of it."""
    text = re.sub(r"\b\d+(ms|s|m|h)( \d+s)?\b", "…", text)
    return re.sub(r"[ ─]+", " ", text)


def _without(names: set[str], found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _without(names, value) for name, value in found.items() if name not in names}
    return [_without(names, item) for item in found] if isinstance(found, list) else found


def test_starts_sends_and_tells_what_became_of_it(server: Serving) -> None:
    started = server.data("workflow", "start", "Order", '{"item": "tea"}', "--run-id", "o")
    assert started == {"run_id": "o", "workflow": "Order"}
    server.until("o", "running")
    sent = server.data("workflow", "send", "o", *APPROVED, "--event-id", "e")
    assert sent == {"run_id": "o", "sent": "Approval", "event_id": "e", "delivered": "waiter", "duplicate": False}
    server.until("o", "completed")
    assert server.data("workflow", "send", "o", *APPROVED, "--event-id", "e")["duplicate"]
    assert server.data("workflow", "status", "o")["result"]["value"]["result"] == {"amount": 5, "note": ""}
    assert server.good("workflow", "start", "Order", '{"item": "tea"}', "--run-id", "o") == (
        "Run o of Order is stored.\n"
    )


def test_pauses_resumes_retries_cancels_forks_and_purges(server: Serving) -> None:
    server.begun("o")
    assert server.good("workflow", "pause", "o") == "Run o was asked to pause.\n"
    assert server.data("workflow", "resume", "o") == {"run_id": "o", "asked": "resume"}
    server.good("runs", "resume", "o", "--max-depth", "20000")
    server.good("workflow", "send", "o", "Approval", '{"amount": -1}')
    server.until("o", "failed")
    server.good("workflow", "retry", "o")
    made = server.data("workflow", "fork", "o", "--tick", "1", "--run-id", "o2")
    assert made == {"run_id": "o2", "forked_from": "o", "tick": 1}
    changed = server.data("workflow", "fork", "o", "--tick", "0", "--run-id", "o3", "--input", '{"item": "coffee"}')
    assert changed == {"run_id": "o3", "forked_from": "o", "tick": 0}
    server.good("workflow", "cancel", "o3")
    server.until("o3", "cancelled")
    server.good("workflow", "purge", "o3")
    refused = failure(1, "workflow", "fork", "o", "--tick", "1", "--input", "{}", "--url", server.url)
    assert refused.startswith("Another input needs a fork at tick 0")
    server.good("workflow", "cancel", "o2")
    server.until("o2", "cancelled")
    server.until("o", "failed")
    assert server.good("workflow", "purge", "o2") == "1 run was deleted.\n"
    assert server.data("workflow", "purge", "--ended-before", "1d", "--yes") == {"purged": 0}
    assert server.data("workflow", "purge", "--ended-before", "0s", "--yes") == {"purged": 1}
    assert server.data("workflow", "list") == []


def test_follows_a_run_to_its_end(server: Serving) -> None:
    server.begun("o")
    command = [sys.executable, "-m", "loom", "workflow", "events", "o", "--follow", "--json", "--url", server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["type"] == "Question"
        server.good("workflow", "send", "o", *APPROVED)
        last = json.loads(following.stdout.read())
        assert (last["type"], last["value"]["result"]["amount"]) == ("StopEvent", 5)
    assert following.returncode == 0


def test_schedules(server: Serving) -> None:
    create = ["schedule", "create", "often", "Double", "--every", "1h", "--tag", "a=b"]
    made = server.data(*create)
    assert (made["recurrence"], made["tags"]) == ({"frequency": "Second", "interval": 3600}, {"a": "b"})
    assert server.data("schedule", "pause", "often") == {"name": "often", "run_id": "schedule:often", "asked": "pause"}
    assert server.data("schedule", "show", "often")["paused"]
    assert server.good("schedule", "resume", "often") == "The schedule often was asked to resume.\n"
    assert server.good("schedule", "delete", "often") == "The schedule often is deleted.\n"
    assert server.data("schedule", "list") == []
    assert failure(1, "schedule", "show", "often", "--url", server.url) == "There is no schedule 'often'."
    assert "'77' must be 0 to 59" in failure(2, *create[:4], "--cron", "77 * * * *", "--url", server.url)


def test_an_unknown_run_is_named(server: Serving) -> None:
    for name in ("status", "events", "history", "replay", "cancel", "pause", "resume", "retry", "skip", "purge"):
        assert failure(1, "workflow", name, "nobody", "--url", server.url) == "Run 'nobody' was not found."
    for name, *rest in (["events", "--follow"], ["send", "Approval"], ["fork", "--tick", "0"]):
        assert failure(1, "workflow", name, "nobody", *rest, "--url", server.url) == "Run 'nobody' was not found."


def test_refusals_have_the_exit_codes_that_they_have_over_a_store(server: Serving) -> None:
    server.begun("o")

    def refused(code: int, *command: str) -> str:
        return failure(code, "workflow", *command, "--url", server.url)

    assert "there is no tick 99" in refused(1, "status", "o", "--tick", "99")
    assert "there is no tick 99" in refused(1, "fork", "o", "--tick", "99")
    assert "'Aproval' is not known here" in refused(1, "send", "o", "Aproval", "{}")
    assert "value/amount: Input should be a valid integer" in refused(2, "send", "o", "Approval", '{"amount": "x"}')
    assert "cancel it before" in refused(1, "purge", "o")
    assert "only a failed run can be retried" in refused(1, "retry", "o")
    assert "no step of it sleeps" in refused(1, "skip", "o")
    assert "choose another one" in refused(1, "start", "Order", '{"item": "other"}', "--run-id", "o")
    assert "No workflow 'Nothing' is served here" in refused(1, "start", "Nothing")
    server.good("workflow", "send", "o", *APPROVED)
    server.until("o", "completed")
    for what in ("cancel", "pause", "resume", "retry", "skip"):
        assert "Run 'o' has ended (completed): " in refused(1, what, "o")
    assert "it takes no event any more" in refused(1, "send", "o", *APPROVED)


def test_every_place_of_a_refusal_is_told() -> None:
    places = [
        Place(path="/input/item", message="missing"),
        Place(path="/input/size", message="No number."),
    ]
    told = Problem(code="invalid-request", status=400, detail="The input is wrong.", errors=places)
    with pytest.raises(WrongUse) as caught, told_by_server():
        raise ClientError(told)
    assert caught.value.message == "The input is wrong. input/item: missing; input/size: No number."


def test_exports_and_imports_a_run_over_a_server(server: Serving, flows: Path) -> None:
    server.good("workflow", "start", "nested", "--run-id", "move-1")
    over = ("--url", server.url)
    good("runs", "export", "move-1", "-o", "run.json", *over)
    kept = json.loads((flows / "run.json").read_bytes())["run"]["row"]
    assert (kept["run_id"], kept["workflow"]) == ("move-1", "nested")
    assert "'move-1'" in failure(1, "runs", "import", "run.json", *over)
    assert "none" in failure(1, "runs", "export", "none", *over)
    # Another store takes it, and a server takes it from there.
    good("runs", "cancel", "move-1", *over)
    server.until("move-1", "cancelled")
    good("runs", "purge", "move-1", *over)
    assert "Run move-1 is stored." in good("runs", "import", "run.json", *over)
    (flows / "run.json").write_text("{}")
    assert "not an exported run" in failure(1, "runs", "import", "run.json", *over)


def test_what_needs_code_at_hand_says_so(server: Serving, flows: Path) -> None:
    for command in (["start", "Order", "--target", "shop.py:Order"], ["status", "o", "--target", "shop.py:Order"]):
        assert "--target is for stores" in failure(2, "workflow", *command, "--url", server.url)
    assert "count.json is a file" in failure(2, "workflow", "start", "count.json", "--url", server.url)
    assert "begins without headers" in failure(2, "workflow", "start", "nested", "--header", "A=b", "--url", server.url)
    assert "decided where a flow is loaded" in failure(
        2, "workflow", "start", "nested", "--max-iterations", "5000", "--url", server.url
    )


def test_keys(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = server.key("read")
    listed = ["workflow", "list", "--url", server.url]
    assert "LOOM_API_KEY" in failure(4, *listed)
    assert failure(4, *listed, "--api-key", "wrong")
    assert good(*listed, "--api-key", reader) == "No runs.\n"
    monkeypatch.setenv("LOOM_API_KEY", reader)
    assert good(*listed) == "No runs.\n"
    refused = failure(4, "workflow", "start", "Double", "--url", server.url)
    assert "lacks the scope 'start'" in refused
    assert reader not in refused


def test_where_the_runs_are(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    server.good("workflow", "start", "Double", "--run-id", "d")
    nowhere = "http://127.0.0.1:9"
    both = loom("workflow", "list", "--store", STORE, "--url", server.url)
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
    monkeypatch.setenv("LOOM_URL", nowhere)
    assert data("workflow", "list", "--store", STORE)[0]["run_id"] == "d", "a store on the command line wins"
    monkeypatch.setenv("LOOM_STORE", "sqlite:///nowhere.db")
    assert data("workflow", "list", "--url", server.url)[0]["run_id"] == "d"
    monkeypatch.setenv("LOOM_URL", server.url)
    assert data("workflow", "list")[0]["run_id"] == "d", "a server wins over a store in the environment"


def test_a_server_that_cannot_be_used(flows: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert f"{url} gave no answer" in failure(3, "workflow", "list", "--url", url)
    for wrong in ("shop.db", "", "http://127.0.0.1:99999", "http://[::1"):
        assert "is no address of a server" in failure(2, "workflow", "list", "--url", wrong)
    for run_id in (".", "..", "\udc80"):
        for command in ("status", "events", "purge", "cancel"):
            assert failure(2, "workflow", command, run_id, "--url", url)


class OtherServer(BaseHTTPRequestHandler):
    """Answers everything, and with JSON."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"fine": true}')

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_some_other_server_is_recognised() -> None:
    with HTTPServer(("127.0.0.1", 0), OtherServer) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        at = ("--url", f"http://127.0.0.1:{other.server_port}")
        assert "without 'items'. Is it a server of Loom?" in failure(3, "workflow", "list", *at)
        for command in (("status", "r"), ("events", "r"), ("replay", "r"), ("fork", "r", "--tick", "1")):
            assert "an unexpected answer" in failure(3, "workflow", *command, *at)
        assert "an unexpected answer" in failure(3, "schedule", "show", "s", *at)
        other.shutdown()


def test_watching_a_run_until_its_end(server: Serving) -> None:
    server.begun("o")
    server.good("workflow", "send", "o", *APPROVED)
    server.until("o", "completed")
    assert "status:      completed" in server.good("workflow", "status", "o", "--watch")
    assert loom("workflow", "list", "--watch", "--json", "--url", server.url).exit_code == 2


def test_watching_a_list_ends_with_ctrl_c(server: Serving) -> None:
    server.begun("o")
    command = [sys.executable, "-m", "loom", "workflow", "list", "--watch", "--url", server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(3)]
        assert lines[2].split()[:3] == ["o", "Order", "running"]
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
    assert watching.returncode == 0


def test_a_server_is_asked_without_loading_an_engine(server: Serving) -> None:
    server.begun("o")
    server.begun("n", "nested")
    engine = ("loom.runtime", "loom.effects", "loom.core", "pydantic", "starlette", "sqlite3")
    commands = (["list", "--json"], ["status", "o"], ["history", "o"], ["send", "n", "Go"], ["events", "o"])
    code = (
        "import sys\n"
        "from loom.cli import main\n"
        f"for command in {commands!r}:\n"
        f"    main(['workflow', *command, '--url', {server.url!r}], standalone_mode=False)\n"
        f"    print('ENGINE', [name for name in {engine!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("ENGINE []\n") == len(commands), done.stdout
