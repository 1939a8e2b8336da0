"""Many runs of durable steps at once: how many steps a second they make in all."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from bench.cases import _chains
from bench.spec import Case, Figures, Metric, absolute

RUNS = 100

Chains = Callable[[str, int, int], float]


def many_runs(
    name: str, title: str, order: int, place: Callable[[], AbstractContextManager[str]], floor: Chains, at_least: int
) -> Case:
    """The case for one kind of database."""

    def measured(chains: Chains) -> Callable[[int], Figures]:
        def measure(size: int) -> Figures:
            steps = max(1, size // RUNS)
            with place() as url:
                return {"steps": RUNS * steps / chains(url, RUNS, steps)}

        return measure

    def bare_group(size: int) -> Figures:
        with place() as url:
            return {"steps": size / floor(url, size, RUNS)}

    peers = {
        "loom": measured(_chains.loom),
        "langgraph": measured(_chains.langgraph),
        "dbos": measured(_chains.dbos),
        "llama-server": measured(_chains.llama_server),
    }
    return Case(
        name=name,
        title=title,
        order=order,
        size=100 * RUNS,
        sizes={peer: 10 * RUNS for peer in peers if peer != "loom"},
        metrics=(Metric("steps", "steps/s", more_is_better=True),),
        peers={**peers, "bare group commit": bare_group},
        targets=(absolute(f"at least {at_least:,} steps/s", "steps", at_least=at_least),),
        warm_up=5 * RUNS,
        preparation_s=20,
    )
