"""One run of durable steps that are declared pure: each may begin while the commits before it are on their way."""

from bench.cases import _chains
from bench.cases.durable_steps import bare_commit, measured
from bench.spec import Case, Metric, within

CASE = Case(
    name="durable-pure",
    title="one run of pure steps on SQLite, synchronous=FULL",
    order=61,
    size=2_000,
    metrics=(Metric("us", "us/step"),),
    peers={
        "loom": measured(_chains.loom_pure),
        "loom plain": measured(_chains.loom),
        "bare commit": bare_commit,
    },
    targets=(within("bare commit", "us", 0.5),),
)
