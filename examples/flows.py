"""Three flows, documents in `flows/`: a polling loop, an approval, and a Logic Apps definition with its mock.

From the shell, with the handlers in this file:
`loom run examples/flows/approval.yaml --handlers examples/flows.py --body '{"item": "a loom", "amount": 900}'`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

import loom
from loom.testing import run_virtual

FLOWS = Path(__file__).with_name("flows")


# -- polling: until the job is complete --------------------------------------------------------------------------------


class Jobs(BaseHTTPRequestHandler):
    """A service whose jobs are complete when somebody has asked three times. The first answer is an error."""

    asked: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        """Answer how a job stands."""
        self.asked[self.path] += 1
        count = self.asked[self.path]
        answer = {"status": "complete", "result": "a bolt of linen"} if count > 3 else {"status": "weaving"}
        data = json.dumps(answer).encode()
        self.send_response(503 if count == 1 else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def service() -> Iterator[str]:
    """The address of a running service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Jobs)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def polling() -> None:
    """Requests reach public addresses only, unless the operator allows others: here the service above."""
    flow = loom.load(FLOWS / "polling.json")
    with service() as address:
        async with loom.connect("memory://", http_allow=["127.0.0.1"]) as runtime:
            runtime.register(flow, name="polling")
            parameters = {"api": address, "pause": 0.05}
            handler = await runtime.start("polling", {"job": "j-7"}, parameters=parameters)
            async for event in handler.stream_events():
                if isinstance(event, loom.LoopIterationEvent):
                    body = event.result["checkStatus"]["body"]
                    print(f"  {event.iteration + 1}/{event.max_iterations}: {body['status']}")
            print(" ", (await handler).raise_for_status().outputs)


# -- approval: a person in the loop ------------------------------------------------------------------------------------


@loom.activity("remind")
async def remind(text: str) -> None:
    """Tell the person once more."""
    print("  mail:", text)


async def approval() -> None:
    """The person answers after four hours; under the virtual clock that takes no time."""
    flow = loom.load(FLOWS / "approval.yaml")
    handler = flow.run({"item": "a loom", "amount": 900})
    async for event in handler.stream_events():
        if isinstance(event, loom.InputRequiredEvent):
            prompt: str = event["prompt"]
            print("  asked:", prompt)
            if "No. 3" in prompt:
                await handler.send_event(loom.FlowEvent(name="Approval", data={"approved": True}))
    print(" ", (await handler).raise_for_status().outputs)


# -- invoices: a definition of Logic Apps ------------------------------------------------------------------------------


@loom.action("ApiConnection")
async def connector(inputs: dict[str, Any]) -> dict[str, Any]:
    """Stands for the Teams connector. The HTTP request has its mock in the document."""
    print("  message:", inputs["body"]["text"])
    return {"statusCode": 201, "body": {}}


async def invoices() -> None:
    """As it was exported. What a deployment would put into `$connections`, the start brings."""
    flow = loom.load(FLOWS / "invoices.json")
    connections = {"teams": {"connectionId": "here"}}
    result = await flow.run({"month": "2026-01"}, parameters={"$connections": connections})
    print(" ", result.raise_for_status().response)


def main() -> None:
    """Run all three."""
    print("polling:")
    asyncio.run(polling())
    print("approval:")
    run_virtual(approval())
    print("invoices:")
    asyncio.run(invoices())


if __name__ == "__main__":
    main()
