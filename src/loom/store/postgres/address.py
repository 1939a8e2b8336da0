"""Where a database is, from its URL. May import the standard library."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")


class Address(NamedTuple):
    """A database and the schema in it."""

    url: str
    """As the driver takes it."""
    schema: str
    place: str
    """For people, without the password."""

    @property
    def quoted_schema(self) -> str:
        """The schema as SQL names it."""
        return f'"{self.schema}"'

    @property
    def channel(self) -> str:
        """Where news of this schema are told."""
        return f"loom_{self.schema}"


def parse(url: str, schema: str | None = None) -> Address:
    """The address that a URL names; its `search_path`, if it has one, is the schema unless another is given."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    named = query.pop("search_path", "loom")
    schema = schema or named
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(
            f"{schema!r} cannot be the schema of a store: use at most 50 letters, digits and underscores, and no digit "
            "at the beginning."
        )
    host = parts.netloc.rpartition("@")[2] or query.get("host", "localhost")
    database = unquote(parts.path.lstrip("/")) or query.get("dbname", "the default database")
    bare = urlunsplit(parts._replace(query=urlencode(query)))
    return Address(bare, schema, f"PostgreSQL at {host}, {database}")
