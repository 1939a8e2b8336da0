"""Windmill's chain of 40 light tasks on PostgreSQL."""

from bench.cases._light_tasks import light_tasks
from bench.places import postgres_url

CASE = light_tasks("light-tasks-postgres", "one run of 40 light tasks on PostgreSQL", 65, postgres_url)
