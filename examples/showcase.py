"""A small shop whose runs are in every state there is: `make demo ARGS=--ui` serves it with its page.

The workflows are module-level names, so that `loom serve examples/showcase.py:order ...` finds them. `seed` starts a
run for each state: under way, waiting for a person, asleep, in a back-off, paused, parked, stuck and ended.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

import loom
from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    retry_policy,
    step,
    stop_after_attempt,
    wait_fixed,
)

SERVED = (
    "order",
    "payment",
    "delivery",
    "campaign",
    "returns",
    "audit",
    "inventory",
    "refund",
    "tracking",
    "stocktake",
)
"""The names that are served."""
HOUR = 3600.0
LOOKS = 900
"""How often the carrier is asked for a parcel until it is there, each second."""


class OrderPlaced(StartEvent):
    """An order as the shop's checkout sends it."""

    customer: str = Field(description="Who ordered.")
    items: list[str] = Field(min_length=1, description="What was ordered.")
    express: bool = Field(default=False, description="Whether it leaves today.")


class Item(Event):
    """One item to pick from its shelf."""

    name: str


class Picked(Event):
    """An item that lies on the packing table."""

    name: str
    shelf: int


class ReleaseQuestion(InputRequiredEvent):
    """What the warehouse asks before a parcel leaves."""

    text: str
    items: list[str]


class ReleaseAnswer(HumanResponseEvent):
    """The decision of a person in the warehouse."""

    approved: bool = Field(description="Let the parcel leave.")
    carrier: Literal["bike", "van", "post"] = Field(default="post", description="Who brings it.")
    note: str = Field(default="", description="A line for the customer.")


class Order(Workflow):
    """Pick the items of an order in parallel, pack them, and ask a person before the parcel leaves."""

    @step
    async def plan(self, ctx: Context, ev: OrderPlaced) -> list[Item]:
        """Fan out: one event per item."""
        await ctx.store.set("customer", ev.customer)
        return [Item(name=name) for name in ev.items]

    @step(num_workers=3, retry_policy=retry_policy(wait=wait_fixed(0.2), stop=stop_after_attempt(3)))
    async def pick(self, ctx: Context, ev: Item) -> Picked:
        """Walk to the shelf. The first try at anything made of glass goes wrong."""
        await asyncio.sleep(0.05)
        if "glass" in ev.name and ctx.retry_info().retry_number == 0:
            raise RuntimeError(f"dropped {ev.name}")
        return Picked(name=ev.name, shelf=len(ev.name))

    @step
    async def pack(self, ctx: Context, picked: list[Picked]) -> StopEvent:
        """Join: pack what was picked, and ask whether it may leave."""
        names = [item.name for item in picked]
        customer = await ctx.store.get("customer")
        question = ReleaseQuestion(text=f"Send {len(names)} items to {customer}?", items=names)
        answer = await ctx.wait_for_event(ReleaseAnswer, waiter_event=question, timeout=None)
        return StopEvent(result={"sent": answer.approved, "by": answer.carrier, "note": answer.note, "items": names})


class Payment(Workflow):
    """Charge a card. The bank refuses, and the run fails after three attempts."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0.05), stop=stop_after_attempt(3)))
    async def charge(self, ev: StartEvent) -> StopEvent:
        """Ask the bank."""
        return StopEvent(result=self._ask_bank(ev.get("card", "4000-0000-0000-0002"), ev.get("amount", 0)))

    def _ask_bank(self, card: str, amount: float) -> str:
        if card.endswith("0002"):
            raise ConnectionError(f"the bank has declined {amount} EUR")
        return "charged"


class Delivery(Workflow):
    """Book a van. The carrier is closed: the next attempt is in an hour, or when somebody says "retry now"."""

    @step(retry_policy=retry_policy(wait=wait_fixed(HOUR), stop=stop_after_attempt(5)))
    async def book(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Call the carrier; the second call is answered."""
        if ctx.retry_info().retry_number == 0:
            raise TimeoutError("the carrier does not answer")
        return StopEvent(result="booked")


class Campaign(Workflow):
    """Wait a day, then write to the customer."""

    @step
    async def remind(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Sleep: the run is asleep, and costs nothing."""
        await ctx.sleep(24 * HOUR)
        return StopEvent(result="reminded")


class ReturnOpened(InputRequiredEvent):
    """A customer wants to send something back."""

    reason: str


class ReturnDecision(HumanResponseEvent):
    """What the shop says to it."""

    accept: bool
    refund: float = Field(default=0.0, ge=0, description="How much the customer gets back, in EUR.")


class Returns(Workflow):
    """Ask by an event alone: a step takes the answer by its signature."""

    @step
    async def open(self, ev: StartEvent) -> ReturnOpened:
        """Ask."""
        return ReturnOpened(reason=ev.get("reason", "too small"))

    @step
    async def decide(self, ev: ReturnDecision) -> StopEvent:
        """Take the answer."""
        return StopEvent(result="refunded" if ev.accept else "refused")


class Unread(Event):
    """An event that no step takes."""


class Audit(Workflow):
    """Return nothing: the run is idle, waits for nothing, and is shown as stuck."""

    @step
    async def look(self, ev: StartEvent) -> StopEvent | None:
        """Find nothing to tell."""
        return StopEvent() if ev.get("found") else None


class Counted(Event):
    """A shelf that was counted."""


class OldInventory(Workflow):
    """The inventory as it was before it lost a step: its runs are parked by the new code."""

    @step
    async def count(self, ev: StartEvent) -> Counted:
        """Count the shelves."""
        return Counted()

    @step
    async def report(self, ev: Counted) -> StopEvent:
        """Work on a report for longer than its process lives."""
        await asyncio.sleep(HOUR)
        return StopEvent(result="counted")


class Inventory(Workflow):
    """The inventory as it is now."""

    @step
    async def count(self, ev: StartEvent) -> StopEvent:
        """Count the shelves."""
        return StopEvent(result="counted")


REFUND = {
    "description": "Ask a person about a large refund, and pay it.",
    "triggers": {"manual": {"type": "Request", "kind": "Http", "inputs": {"schema": {
        "type": "object",
        "required": ["amount"],
        "properties": {"amount": {"type": "number"}, "customer": {"type": "string"}},
    }}}},
    "actions": {
        "isLarge": {
            "type": "if",
            "condition": "@greater(triggerBody().amount, 100)",
            "actions": {
                "ask": {
                    "type": "waitForEvent",
                    "inputs": {
                        "event": "RefundApproval",
                        "prompt": "Pay back @{triggerBody().amount} EUR?",
                        "schema": {
                            "type": "object",
                            "required": ["approved"],
                            "properties": {
                                "approved": {"type": "boolean", "description": "Pay the money back."},
                                "comment": {"type": "string"},
                            },
                        },
                    },
                },
            },
            "else": {"actions": {"small": {"type": "compose", "inputs": "paid at once"}}},
        },
        "pay": {
            "type": "compose",
            "inputs": {"paid": "@triggerBody().amount"},
            "runAfter": {"isLarge": ["Succeeded"]},
        },
    },
    "outputs": {"paid": {"type": "float", "value": "@triggerBody().amount"}},
}  # fmt: skip
"""A flow that asks a person."""

TRACKING = {
    "description": "Ask the carrier where a parcel is until it has arrived.",
    "actions": {
        "untilArrived": {
            "type": "until",
            "condition": "@equals(body('whereIsIt').at, 'door')",
            "actions": {
                "whereIsIt": {
                    "type": "activity",
                    "inputs": {"activityType": "where_is_it", "input": "@variables('loopCount')"},
                },
            },
            "delay": {"interval": {"count": 1, "unit": "second"}},
            "limit": {"count": 1000, "timeout": "PT1H"},
        },
        "tell": {
            "type": "compose",
            "inputs": "arrived after @{length(result('untilArrived')[0].outputs)} looks",
            "runAfter": {"untilArrived": ["Succeeded"]},
        },
    },
}
"""A flow that loops with a delay."""

STOCKTAKE = {
    "description": "Count every shelf, room by room.",
    "actions": {
        "rooms": {
            "type": "foreach",
            "foreach": "@createArray('cellar', 'hall', 'attic')",
            "actions": {
                "shelves": {
                    "type": "foreach",
                    "foreach": "@range(1, 20)",
                    "actions": {
                        "count": {"type": "compose", "inputs": "@mul(item(), 3)"},
                    },
                },
                "sum": {
                    "type": "compose",
                    "inputs": "@{item()} is counted",
                    "runAfter": {"shelves": ["Succeeded"]},
                },
            },
        },
        "report": {"type": "compose", "inputs": "all counted", "runAfter": {"rooms": ["Succeeded"]}},
    },
}
"""A flow with a loop in a loop."""


@loom.activity("where_is_it")
def where_is_it(look: int) -> dict[str, Any]:
    """Tell where the parcel is; at the 900th look, a quarter of an hour later, it is at the door."""
    return {"at": "door" if look >= LOOKS else "road", "look": look}


order, payment, delivery = Order(timeout=None), Payment(timeout=None), Delivery(timeout=None)
campaign, returns, audit, inventory = (
    Campaign(timeout=None),
    Returns(timeout=None),
    Audit(timeout=None),
    Inventory(timeout=None),
)
refund, tracking, stocktake = loom.load(REFUND), loom.load(TRACKING), loom.load(STOCKTAKE)

ITEMS = (["tea", "a glass bowl"], ["a lamp", "a rug", "two chairs"], ["a book"])
CUSTOMERS = ("Ada", "Grace", "Edsger")


async def seed(url: str) -> None:
    """Start runs in every state, and leave when they are there."""
    async with loom.connect(url, idle_timeout=0.5) as runtime:
        for name in SERVED:
            runtime.register(OldInventory(timeout=None) if name == "inventory" else globals()[name], name=name)
        for number, (customer, items) in enumerate(zip(CUSTOMERS, ITEMS, strict=True), 1):
            fields = {"customer": customer, "items": items}
            await runtime.start("order", fields, run_id=f"order-{number}", tags={"customer": customer.lower()})
        await runtime.start("returns", {"reason": "too small"}, run_id="return-1")
        await runtime.start("refund", {"amount": 250, "customer": "Ada"}, run_id="refund-1")
        await runtime.start("delivery", run_id="delivery-1")
        await runtime.start("campaign", run_id="campaign-1", tags={"team": "marketing"})
        await runtime.start("audit", run_id="audit-1")
        await runtime.start("inventory", run_id="inventory-1")
        await runtime.start("tracking", run_id="tracking-1")
        await runtime.start("campaign", run_id="campaign-2")
        await runtime.cancel("campaign-2", reason="the customer has moved")
        await runtime.start("returns", {"reason": "broken"}, run_id="return-2")
        await runtime.pause("return-2")
        ended = [
            await runtime.start("refund", {"amount": 20 + number}, run_id=f"refund-small-{number}")
            for number in range(3)
        ]
        ended.append(await runtime.start("stocktake", run_id="stocktake-1"))
        ended.append(await runtime.start("payment", {"amount": 42}, run_id="payment-1"))
        await asyncio.gather(*ended, return_exceptions=True)
        await until(runtime, "order-3", lambda info: info.active_waiters)
        await runtime.send_event("order-3", ReleaseAnswer(approved=True, carrier="bike", note="on its way"))
        await (await runtime.handler("order-3"))
        await until(runtime, "order-1", lambda info: info.active_waiters)
        await until(runtime, "delivery-1", lambda info: not info.in_memory)
        await until(runtime, "audit-1", lambda info: info.stuck)


async def until(runtime: Any, run_id: str, holds: Any) -> None:
    """Return when something holds of a run."""
    while not holds(await runtime.get(run_id)):  # noqa: ASYNC110 - a run is looked at, as a person would
        await asyncio.sleep(0.02)


def targets(file: Path) -> list[str]:
    """Return what `loom serve` is told: each workflow by its name."""
    return [f"{file}:{name}" for name in SERVED]
