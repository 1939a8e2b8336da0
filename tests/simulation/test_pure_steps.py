"""Chains that mix pure steps with others: no key of a step that acts outside is ever used with two inputs (ADR 63)."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

import pytest

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.active_run import ActiveRun
from loom.runtime.durable.registration import StepsRegistration
from loom.testing import FaultPlan, Faults, simulate
from loom.testing.simulation_programs import Ended

CRASHES = Faults(store=FaultPlan(crash=0.05, fail_before=0.03, slow=0.5, slow_s=0.1), kill=0.1, lasts_s=60.0)
ROUNDS = 4
DRAWS = 3


class Draw(Event):
    round: int = 0
    depth: int = 0
    drawn: int = 0


class Pay(Event):
    round: int
    amount: int


class Paid(Event):
    round: int
    amount: int


class World:
    """What lies outside of all runs: chance, and the accounts that payments reach."""

    def __init__(self) -> None:
        self.chance = count()
        self.payments: defaultdict[str, set[int]] = defaultdict(set)
        """Amounts that were paid, by idempotency key."""
        self.receipts: defaultdict[str, set[int]] = defaultdict(set)
        """Inputs of pure steps that called `ctx.once`, by idempotency key."""

    def problems(self) -> list[str]:
        return [
            f"{key} with {sorted(amounts)}"
            for book in (self.payments, self.receipts)
            for key, amounts in book.items()
            if len(amounts) > 1
        ]


class Payments(Workflow):
    """Pure steps draw an amount, another one each time that they run; a step that is not pure pays it."""

    def __init__(self, world: World) -> None:
        super().__init__(timeout=None)
        self.world = world

    @step(pure=True)
    async def begin(self, ev: StartEvent) -> Draw:
        return Draw()

    @step(pure=True)
    async def draw(self, ctx: Context, ev: Draw) -> Draw | Pay:
        if ev.depth < DRAWS:
            return Draw(round=ev.round, depth=ev.depth + 1, drawn=next(self.world.chance))
        key = ctx.idempotency_key
        await ctx.once("receipt", lambda: self.world.receipts[key].add(ev.drawn))
        return Pay(round=ev.round, amount=next(self.world.chance))

    @step
    async def pay(self, ctx: Context, ev: Pay) -> Paid:
        self.world.payments[ctx.idempotency_key].add(ev.amount)
        return Paid(round=ev.round, amount=ev.amount)

    @step(pure=True)
    async def book(self, ctx: Context, ev: Paid) -> Draw | StopEvent:
        ctx.write_event_to_stream(ev)
        return Draw(round=ev.round + 1) if ev.round + 1 < ROUNDS else StopEvent(result=ev.amount)


def live_through(seed: int) -> World:
    """Simulate one seed; each run must have paid what its stream says, once a round."""
    world = World()

    def check(ended: Ended) -> None:
        if ended.status == "completed":
            paid = [event for event in ended.events if isinstance(event, Paid)]
            assert [event.round for event in paid] == list(range(ROUNDS))
            assert paid[-1].amount == ended.result
            amounts = set().union(*world.payments.values())
            assert {event.amount for event in paid} <= amounts

    simulate(lambda: Payments(world), seed=seed, runs=3, check=check, faults=CRASHES, workers=2)
    return world


@pytest.mark.parametrize("seed", range(12))
def test_a_key_is_never_used_with_two_inputs(seed: int) -> None:
    world = live_through(seed)
    assert world.problems() == []
    assert world.payments
    assert world.receipts


def test_it_would_be_if_nothing_waited_before_ctx_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: it does so within a few seeds without the barrier."""
    monkeypatch.setattr(ActiveRun, "lease", lambda self: self._lease.held())
    assert any(live_through(seed).problems() for seed in range(12))


def test_it_would_be_if_all_steps_went_ahead_of_their_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: it does so within a few seeds if the declaration is not asked for."""
    make = StepsRegistration.__init__

    def make_all_pure(self: StepsRegistration, *given: object) -> None:
        make(self, *given)  # type: ignore[arg-type]
        self.pure = frozenset(self.bindings)

    monkeypatch.setattr(StepsRegistration, "__init__", make_all_pure)
    assert any(live_through(seed).problems() for seed in range(12))
