"""What a workflow instance of Temporal needs for one activation: a signal that asks for an activity, and its result."""

from collections.abc import Callable
from statistics import median

from bench.cases import _temporal
from bench.spec import Case, Figures, Metric, absolute, faster_than


def _measured(make: Callable[[str, int], _temporal.Peer]) -> Callable[[int], Figures]:
    def measure(size: int) -> Figures:
        from bench.cases._temporal_hand import microseconds

        peer = make("Inbox", 0)
        hand = peer.hand()
        for command in hand.begin():
            hand.resolve(command.schedule_activity, peer.answer)
        begun = len(hand.given)
        for n in range(size):
            (command,) = hand.signal(peer.signal_name, peer.word(n))
            assert hand.resolve(command.schedule_activity, peer.answer) == []
        needed = microseconds(peer.new(), hand.given)[begun:]
        # What is usual: on a busy machine some of them are interrupted.
        signal, result = median(needed[::2]), median(needed[1::2])
        return {"us": (signal + result) / 2, "signal": signal, "result": result}

    return measure


CASE = Case(
    name="temporal-activation",
    title="one activation of a workflow on Temporal: a signal or the result of an activity",
    order=101,
    size=1_000,
    metrics=(Metric("us", "us/activation"), Metric("signal", "us/signal"), Metric("result", "us/result")),
    peers={"loom": _measured(_temporal.loom), "temporalio": _measured(_temporal.plain)},
    targets=(absolute("at most 60 us/activation", "us", at_most=60), faster_than("temporalio", "us", 1)),
    preparation_s=20,
)
