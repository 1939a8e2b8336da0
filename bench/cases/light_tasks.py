"""Windmill's chain of 40 light tasks on SQLite."""

from bench.cases._light_tasks import light_tasks
from bench.places import sqlite_url

CASE = light_tasks("light-tasks", "one run of 40 light tasks on SQLite, synchronous=FULL", 64, sqlite_url)
