"""A hundred runs of durable steps at once on PostgreSQL."""

from bench.cases import _floors
from bench.cases._durable_many import many_runs
from bench.places import postgres_url

CASE = many_runs(
    "durable-postgres",
    "100 runs of durable steps at once on PostgreSQL",
    62,
    postgres_url,
    _floors.postgres,
    at_least=8_000,
)
