"""A saga: three bookings, taken back in reverse order when one of them fails or the run is cancelled.

`python examples/saga.py` runs three orders in a temporary file: one is booked, one finds no car, one is cancelled.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path

import loom
from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    RunCancelledEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    catch_error,
    on_cancel,
    retry_policy,
    step,
    stop_after_attempt,
    wait_fixed,
)


class Agency:
    """The service outside. It books once per key, and takes back what it has of a key, if anything."""

    def __init__(self) -> None:
        self.bookings: dict[str, str] = {}

    def book(self, what: str, key: str) -> str:
        """Book something, once however often it is asked."""
        if what.startswith("no "):
            raise LookupError(f"there is {what}")
        if key not in self.bookings:
            print(f"  book {what}")
        self.bookings[key] = what
        return what

    def take_back(self, key: str) -> None:
        """Take a booking back. One that was never made is none of its business."""
        what = self.bookings.pop(key, None)
        if what is not None:
            print(f"  take back {what}")


AGENCY = Agency()


class Order(StartEvent):
    """What is to be booked."""

    car: str
    asks: bool = False


class FlightBooked(Event):
    """The first booking stands."""

    car: str
    asks: bool


class HotelBooked(Event):
    """The second booking stands."""

    car: str


class Question(InputRequiredEvent):
    """What a person is asked."""


class Go(HumanResponseEvent):
    """What the person says."""


class Trip(Workflow):
    """Books a flight, a hotel and a car, or nothing."""

    @step
    async def flight(self, ctx: Context, ev: Order) -> FlightBooked:
        """The first booking."""
        await self._book(ctx, "flight")
        return FlightBooked(car=ev.car, asks=ev.asks)

    @step
    async def hotel(self, ctx: Context, ev: FlightBooked) -> HotelBooked:
        """The second booking; a person may be asked before the third."""
        await self._book(ctx, "hotel")
        if ev.asks:
            await ctx.wait_for_event(Go, waiter_event=Question(), timeout=None)
        return HotelBooked(car=ev.car)

    @step
    async def car(self, ctx: Context, ev: HotelBooked) -> StopEvent:
        """The third booking."""
        await self._book(ctx, ev.car)
        return StopEvent(result="booked")

    @catch_error
    async def give_up(self, ctx: Context, ev: StepFailedEvent) -> StopEvent:
        """A booking has failed for good: take back what stands, and end with a result that says so."""
        await self._take_all_back(ctx)
        return StopEvent(result=f"taken back: {ev.exception}")

    @on_cancel(timeout=300, retry_policy=retry_policy(wait=wait_fixed(5), stop=stop_after_attempt(20)))
    async def undo(self, ctx: Context, ev: RunCancelledEvent) -> None:
        """The run was cancelled: take back what stands. Then it ends."""
        print(f"  cancelled in {', '.join(ev.steps)}: {ev.reason}")
        await self._take_all_back(ctx)

    async def _book(self, ctx: Context, what: str) -> None:
        key = ctx.idempotency_key
        keys: list[str] = await ctx.store.get("keys", default=[])
        if key not in keys:
            await ctx.store.set("keys", [*keys, key])
        await ctx.once("noted", lambda: True)  # from here on the store has the key, whatever happens
        await ctx.once("booked", lambda: AGENCY.book(what, key))

    async def _take_all_back(self, ctx: Context) -> None:
        keys: list[str] = await ctx.store.get("keys", default=[])
        for key in reversed(keys):
            await ctx.once(f"took back {key}", partial(AGENCY.take_back, key))


async def main() -> None:
    """Run three orders."""
    with tempfile.TemporaryDirectory() as folder:
        async with loom.connect(f"sqlite:///{Path(folder) / 'trips.db'}") as runtime:
            runtime.register(Trip(timeout=None), name="trip")

            print("Ann:", await (await runtime.start("trip", {"car": "car"})))
            AGENCY.bookings.clear()

            print("Ben:", await (await runtime.start("trip", {"car": "no car"})))
            assert not AGENCY.bookings

            handler = await runtime.start("trip", {"car": "car", "asks": True}, run_id="cleo")
            async for event in handler.stream_events():
                if isinstance(event, Question):
                    await runtime.cancel("cleo", reason="the trip is off")
            print("Cleo:", (await runtime.get("cleo")).status)
            assert not AGENCY.bookings


if __name__ == "__main__":
    asyncio.run(main())
