"""One run of durable steps, one after the other: what it costs to have each step on the disk before the next begins."""

from collections.abc import Callable

from bench.cases import _chains, _floors
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, faster_than, within


def measured(chains: Callable[[str, int, int], float]) -> Callable[[int], Figures]:
    def measure(size: int) -> Figures:
        with sqlite_url() as url:
            return {"us": chains(url, 1, size) / size * 1e6}

    return measure


def bare_commit(size: int) -> Figures:
    with sqlite_url() as url:
        return {"us": _floors.sqlite(url, size, 1) / size * 1e6}


def commit_in_thread(size: int) -> Figures:
    with sqlite_url() as url:
        return {"us": _floors.sqlite_in_thread(url, size) / size * 1e6}


CASE = Case(
    name="durable-steps",
    title="one run of durable steps on SQLite, synchronous=FULL",
    order=60,
    size=2_000,
    sizes={"langgraph": 500, "dbos": 500, "llama-server": 300},
    metrics=(Metric("us", "us/step"),),
    peers={
        "loom": measured(_chains.loom),
        "langgraph": measured(_chains.langgraph),
        "dbos": measured(_chains.dbos),
        "llama-server": measured(_chains.llama_server),
        "bare commit": bare_commit,
        "bare commit in a thread": commit_in_thread,
    },
    targets=(
        within("bare commit", "us", 1.5),
        faster_than("langgraph", "us", 4),
        faster_than("llama-server", "us", 10),
    ),
)
