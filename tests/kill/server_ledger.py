"""The workflow of the server that is killed: a run that gathers notes, each of which must count once."""

from __future__ import annotations

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step


class Note(HumanResponseEvent):
    """One thing to be kept."""

    number: int


class Ledger(Workflow):
    """Takes so many notes, one after the other, and gives their numbers."""

    @step
    async def gather(self, ctx: Context, ev: StartEvent) -> StopEvent:
        taken = []
        for place in range(ev.notes):
            note = await ctx.wait_for_event(Note, waiter_id=f"note-{place}", timeout=None)
            taken.append(note.number)
        return StopEvent(result=taken)
