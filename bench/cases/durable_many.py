"""A hundred runs of durable steps at once on SQLite."""

from bench.cases import _floors
from bench.cases._durable_many import many_runs
from bench.places import sqlite_url

CASE = many_runs(
    "durable-many",
    "100 runs of durable steps at once on SQLite, synchronous=FULL",
    61,
    sqlite_url,
    _floors.sqlite,
    at_least=10_000,
)
