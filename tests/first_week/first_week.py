"""What a new user types in a first week with Loom, as one program: `python first_week.py` in an empty folder.

It needs Loom with the extra `server`, installed from the wheel. Each day writes small files, runs commands, prints what
they print, and checks the lines that matter. Any difference ends the week with the command and its whole output.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import loom
import loom.cli.app
import loom.cli.engine_process
import loom.cli.inspect_commands
import loom.cli.server_runs
import loom.cli.store_runs
import loom.store.sqlite.store

_PATIENCE_S = 60.0
_HAS_FORK = hasattr(os, "fork")
_checks = 0


class Stumbled(AssertionError):
    """The user did not see what the pages promise."""


def say(text: str) -> None:
    """Print a line at once: the log of a week that stumbles shows where."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write(name: str, text: str) -> None:
    """Save a file as an editor would."""
    Path(name).write_text(dedent(text).lstrip(), "utf-8")


def types(command: str, *seen: str, fails: bool = False, unseen: tuple[str, ...] = ()) -> str:
    """Run a command line, print it with its output, and look for each expression of `seen` in that."""
    global _checks  # noqa: PLW0603 - one program, one count
    code, output = _done(shlex.split(command))
    say(f"$ {command}\n{output.rstrip()}\n")
    if (code != 0) is not fails:
        raise Stumbled(f"`{command}` ended with {code}:\n{output}")
    for pattern in seen:
        if not re.search(pattern, output):
            raise Stumbled(f"`{command}` does not show {pattern!r}:\n{output}")
        _checks += 1
    for pattern in unseen:
        if re.search(pattern, output):
            raise Stumbled(f"`{command}` shows {pattern!r}:\n{output}")
        _checks += 1
    return output


def _done(words: list[str]) -> tuple[int, str]:
    """Run a command and return its exit code and what it printed."""
    program, *arguments = words
    if program == "loom" and _HAS_FORK:
        return _forked(arguments)
    done = subprocess.run(
        [sys.executable, *(["-m", program] if program != "python" else []), *arguments],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
        env={**os.environ, "COLUMNS": "140"},
    )
    return done.returncode, done.stdout + done.stderr


def _forked(arguments: list[str]) -> tuple[int, str]:
    """Run `python -m loom` in a fork of this process, which has its modules loaded: a start costs a tenth."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if not child:
            code = 1
            try:
                for stream in (1, 2):
                    os.dup2(printed.fileno(), stream)
                signal.alarm(int(_PATIENCE_S))
                os.environ["COLUMNS"] = "140"
                sys.argv[1:], sys.path[0] = arguments, ""
                runpy.run_module("loom", run_name="__main__", alter_sys=True)
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    sys.stderr.write(f"{end.code}\n")
            except BaseException:  # noqa: BLE001 - as the interpreter does
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        printed.seek(0)
        return os.waitstatus_to_exitcode(status), printed.read().decode()


def until(what: str, question: Callable[[], bool]) -> None:
    """Ask until the answer is yes."""
    deadline = time.monotonic() + _PATIENCE_S
    while not question():
        if time.monotonic() > deadline:
            raise Stumbled(f"It never came to this: {what}")
        time.sleep(0.05)


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """`loom serve` in another terminal, while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = Path(f"serve-{port}.log")
    with log.open("wb") as file:
        command = [sys.executable, "-m", "loom", "serve", *arguments, "--port", str(port)]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}"
    say(f"$ loom serve {' '.join(arguments)} &\n")

    def ready() -> bool:
        if process.poll() is not None:
            raise Stumbled(f"The server has ended:\n{log.read_text('utf-8')}")
        try:
            return fetch(f"{url}/v1/health/ready") is not None
        except OSError:
            return False

    try:
        until("the server answers", ready)
        yield url
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)
        say(f"--- the server's log\n{log.read_text('utf-8').rstrip()}\n")


def fetch(url: str) -> str:
    """The text at a URL of this machine."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


# -- the days ---------------------------------------------------------------------------------------------------------


def monday() -> None:
    """A first workflow in memory: one file, no `await`, fields named as one likes, errors that name the line."""
    write(
        "first.py",
        """
        from loom import StartEvent, StopEvent, Workflow, step


        class Order(StartEvent):
            items: list[str]


        class Shipped(StopEvent):
            parcels: int


        class Ship(Workflow):
            @step
            async def pack(self, ev: Order) -> Shipped:
                return Shipped(parcels=len(ev.items))


        if __name__ == "__main__":
            print(Ship().run_sync(items=["tea", "silk"]))
            try:
                Ship().run_sync()
            except Exception as error:
                print(type(error).__name__, "names", "items" if "items" in str(error) else "nothing")
        """,
    )
    types("python first.py", r"parcels=2", r"names items", unseen=(r"\bNone\b", r"Warning"))
    types("loom --help", r"workflow", r"\bwhy\b", r"serve")


_ORDERS = """
    from loom import (
        Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow,
        retry_policy, step, stop_after_attempt, wait_fixed,
    )


    class Order(StartEvent):
        item: str
        n: int = 1


    class Question(InputRequiredEvent):
        text: str


    class Approval(HumanResponseEvent):
        approved: bool
        by: str


    class Orders(Workflow):
        @step(retry_policy=retry_policy(stop=stop_after_attempt(2), wait=wait_fixed(0.05)))
        async def charge(self, ctx: Context, ev: Order) -> StopEvent:
            share = await ctx.once("share", lambda: 1 / ev.n)
            question = Question(text=f"Ship {ev.item}?")
            answer = await ctx.wait_for_event(Approval, waiter_event=question, timeout=None)
            return StopEvent(result=f"{ev.item} shipped by {answer.by}, {share}")


    class Slow(Workflow):
        @step(retry_policy=retry_policy(stop=stop_after_attempt(5), wait=wait_fixed(3600)))
        async def call(self, ev: StartEvent) -> StopEvent:
            raise ConnectionError("no line\\nto the shop")


    class Lost(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent | None:
            return None
"""


def tuesday() -> None:
    """Served runs that fail, retry, wait and get stuck: each says so, and where."""
    write("orders.py", _ORDERS)
    with served("orders.py:Orders", "orders.py:Slow", "orders.py:Lost") as url:
        os.environ["LOOM_URL"] = url
        types("loom workflow start Orders '{\"n\": 1}'", r"item: Field required", fails=True)
        types('loom workflow start Orders \'{"item": "tea", "n": 0}\' --run-id bad', r"Run bad of Orders is stored")
        types("loom workflow start Slow '{}' --run-id slow")
        types("loom workflow start Lost '{}' --run-id lost")
        types('loom workflow start Orders \'{"item": "tea"}\' --run-id good')
        until("bad has failed", lambda: json.loads(fetch(f"{url}/v1/runs/bad"))["status"] == "failed")
        types("loom workflow status bad", r"ZeroDivisionError", r'orders\.py", line \d+, in', r"1 / ev\.n")
        types("loom workflow history bad", r"failed in attempt 1 of 2: ZeroDivisionError", r"1 / ev\.n")
        until("slow has failed once", lambda: "failed once" in fetch(f"{url}/v1/runs/slow/why"))
        types("loom workflow status slow", r"1 of 5", r"ConnectionError: no line *\n +to the shop")
        types("loom why slow", r"attempt 2 of 5 is due at .*ConnectionError: no line")
        types("loom workflow cancel slow")
        until("slow is cancelled", lambda: json.loads(fetch(f"{url}/v1/runs/slow"))["status"] == "cancelled")
        types("loom workflow status slow", unseen=(r"Timers",))
        until("lost is stuck", lambda: json.loads(fetch(f"{url}/v1/runs/lost"))["stuck"] is not None)
        types("loom workflow list --stuck", r"lost .*stuck", unseen=(r"good",))
        types("loom why lost", r"Step 'begin' returned None")
        types("loom why good", r"Step 'charge' waits for event 'Approval' since")
        wednesday(url)
        metrics = fetch(f"{url}/metrics")
        for line in (
            r'loom_runs_failed_total\{workflow="Orders"\} 1',
            r'loom_step_failures_total\{workflow="Orders",step="charge"\} 2',
            r'loom_step_seconds_count\{workflow="Orders",step="charge"\}',
        ):
            found = re.search(line, metrics)
            if found is None:
                raise Stumbled(f"/metrics has no {line!r}")
            say(found[0])
        del os.environ["LOOM_URL"]


def wednesday(url: str) -> None:
    """Wrong answers: refused where the class is known, and survived where it is not."""
    types("loom workflow send good Approval '{\"approved\": true}' --url " + url, r"by: Field required", fails=True)
    types("loom workflow send good Approval '{\"approved\": true}' --store sqlite:///loom.db", r"stored for run good")
    until("the answer is refused", lambda: "refused" in fetch(f"{url}/v1/runs/good/state"))
    types("loom workflow status good", r"running \(idle\)", r"Refused events", r"by: Field required")
    types("loom why good", r"waits for event 'Approval' since .*the last Approval was refused: by: Field required")
    types('loom workflow send good Approval \'{"approved": true, "by": "ada"}\' --store sqlite:///loom.db')
    until("good is over", lambda: json.loads(fetch(f"{url}/v1/runs/good"))["status"] == "completed")
    types("loom workflow status good", r"tea shipped by ada")
    types('loom workflow retry bad --event Approval \'{"approved": true, "by": "x"}\'', r"Order", fails=True)
    types('loom workflow retry bad --event Order \'{"item": "silk", "n": 2}\'')
    until("bad waits", lambda: "Approval" in fetch(f"{url}/v1/runs/bad/why"))
    types('loom workflow send bad Approval \'{"approved": true, "by": "bob"}\'')
    until("bad is healed", lambda: json.loads(fetch(f"{url}/v1/runs/bad"))["status"] == "completed")
    types("loom workflow status bad", r"silk shipped by bob, 0\.5")


def thursday() -> None:
    """A loop that fails goes on where it failed; a retry cannot spin; a wrong document is refused with its path."""
    write(
        "loop.json",
        """
        {"each": {"type": "foreach", "foreach": "@createArray(1, 2, 3)", "sequential": true, "actions": {
            "work": {"type": "activity", "inputs": {"activityType": "work", "input": "@item()"}}}}}
        """,
    )
    write(
        "work.py",
        """
        import pathlib

        import loom


        @loom.activity("work")
        def work(number: int) -> int:
            with open("done.txt", "a") as done:
                done.write(f"{number} ")
            return {1: 1, 2: 2, 3: 3}[number if number != 3 or pathlib.Path("mended").exists() else 33]
        """,
    )
    run = "loom run loop.json --handlers work.py --store sqlite:///flows.db --run-id loop-1"
    types(run, r"KeyError: 33", fails=True)
    types("loom workflow status loop-1 --store sqlite:///flows.db", r"KeyError: 33")
    Path("mended").touch()
    types("loom workflow retry loop-1 --store sqlite:///flows.db")
    types(run, r"Succeeded")
    done = Path("done.txt").read_text()
    if done != "1 2 3 3 ":
        raise Stumbled(f"The retry should have done 3 alone: {done}")
    write(
        "spin.json",
        """
        {"again": {"type": "retry", "retryPolicy": {"type": "fixed", "count": 5000, "interval": "PT0S"},
            "action": {"type": "activity", "inputs": {"activityType": "work", "input": 4}}}}
        """,
    )
    types("loom validate spin.json", r"retryPolicy.count: Retry count exceeds system limit: 1000", fails=True)


def friday() -> None:
    """Tokens, scripts without `await`, and a month of waiting that a test lets pass at once."""
    write(
        "tokens.py",
        """
        import asyncio
        import time

        import loom
        from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
        from loom.testing import run_virtual


        class Token(Event):
            text: str


        class Yes(HumanResponseEvent):
            pass


        class Agent(Workflow):
            calls = 0

            @step
            async def answer(self, ctx: Context, ev: StartEvent) -> StopEvent:
                Agent.calls += 1
                for number in range(3 if Agent.calls == 1 else 5):
                    ctx.write_event_to_stream(Token(text=f"{Agent.calls}.{number}"))
                await ctx.wait_for_event(Yes, timeout=None)
                return StopEvent(result=Agent.calls)


        async def month() -> None:
            async with loom.connect("memory://", idle_timeout=1) as runtime:
                runtime.register(Agent(), name="agent")
                handler = await runtime.start("agent", run_id="chat")
                await asyncio.sleep(30 * 86400)
                await runtime.send_event("chat", Yes())
                print("calls", await handler)
                shown = {}
                async for cursor, event in handler.stream_with_cursors():
                    if isinstance(event, loom.StreamSupersededEvent):
                        for first, last in event.cursors:
                            for old in range(first, last + 1):
                                shown.pop(old, None)
                    elif isinstance(event, Token):
                        shown[cursor] = event.text
                print("tokens", *shown.values())


        begun = time.monotonic()
        run_virtual(month())
        print("a month in", "seconds" if time.monotonic() - begun < 10 else "too long")

        with loom.connect_sync("sqlite:///agents.db") as runtime:
            runtime.register(Agent(), name="agent")
            handler = runtime.start("agent", run_id="chat-2")
            print(handler)
            runtime.send_event("chat-2", Yes())
            print("sync", handler.result(timeout=30), runtime.get("chat-2").status, runtime.why("chat-2").kind)
        """,
    )
    types(
        "python tokens.py",
        r"calls 2",
        r"tokens 2\.0 2\.1 2\.2 2\.3 2\.4\n",
        r"a month in seconds",
        r"SyncHandler\(workflow='.+', run_id='chat-2', status='\w+'\)",
        r"sync \d completed ended",
    )


def main() -> None:
    """Live through the week."""
    say(f"Loom is at {Path(loom.__file__).parents[1]}\n")
    for day in (monday, tuesday, thursday, friday):
        say(f"=== {day.__name__}: {day.__doc__}\n")
        day()
    say(f"{_checks} passed, 0 failed")


if __name__ == "__main__":
    main()
