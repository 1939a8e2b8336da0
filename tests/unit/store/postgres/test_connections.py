"""What a URL names."""

from __future__ import annotations

import pytest

from loom.store.postgres.connections import parse_address


def test_the_schema_is_loom_unless_the_url_or_the_caller_names_one() -> None:
    assert parse_address("postgresql://db/app").schema == "loom"
    assert parse_address("postgresql://db/app?search_path=runs").schema == "runs"
    assert parse_address("postgresql://db/app?search_path=runs", "other").schema == "other"


def test_the_driver_gets_the_rest_of_the_query() -> None:
    address = parse_address("postgresql://u:p@db:5433/app?sslmode=require&search_path=runs")
    assert address.url == "postgresql://u:p@db:5433/app?sslmode=require"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://user:secret@db:5433/app", "PostgreSQL at db:5433, app"),
        ("postgresql://user:secret@/app?host=/run/pg", "PostgreSQL at /run/pg, app"),
        ("postgresql://", "PostgreSQL at localhost, the default database"),
    ],
)
def test_people_see_where_it_is_and_no_password(url: str, place: str) -> None:
    assert parse_address(url).place == place


@pytest.mark.parametrize("schema", ["a-b", "1st", "x" * 51, 'a"; DROP SCHEMA loom; --'])
def test_a_name_that_could_be_more_than_a_name_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match="cannot be the schema"):
        parse_address("postgresql://db/app", schema)
