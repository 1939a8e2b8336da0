from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import pytest

from loom.cli.options import duration, json_object, moment, tag
from loom.cli.session import safe_url


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("7d", 604800), ("4 w", 2419200)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "5y", "-5s", "1h30m", "nan"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a length of time"):
        duration(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@h/shop?x=1", "postgresql://me:***@h/shop?x=1"),
        ("postgresql://me@h/shop?password=s3cret&x=1", "postgresql://me@h/shop?password=***&x=1"),
        ("postgresql://h/shop?x=1&sslpassword=s3cret", "postgresql://h/shop?x=1&sslpassword=***"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
    ],
)
def test_passwords_of_stores_are_not_shown(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_moments() -> None:
    assert moment("2026-01-31T12:00:00+00:00") == datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    assert moment("2026-01-31") == datetime(2026, 1, 31).astimezone().timestamp()
    assert time.time() - moment("1h") == pytest.approx(3600, abs=5)
    with pytest.raises(click.BadParameter, match="is not a time"):
        moment("tomorrow")


def test_json_objects() -> None:
    assert json_object('{"a": [1, null]}') == {"a": [1, None]}
    for text, reason in (("[]", "no object"), ("{", "not JSON"), ("@/nowhere", "cannot be read")):
        with pytest.raises(click.BadParameter, match=reason):
            json_object(text)


def test_tags() -> None:
    assert tag("a=b=c") == ("a", "b=c")
    assert tag("a=") == ("a", "")
    for text in ("a", "=b"):
        with pytest.raises(click.BadParameter, match="NAME=VALUE"):
            tag(text)
