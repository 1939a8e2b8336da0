"""The options of `loom.connect`."""

from __future__ import annotations

import pytest

import loom
from loom.runtime.durable.settings import Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"idle_timeout": -1}, "idle_timeout must not be negative, got -1."),
        ({"idle_timeout": float("nan")}, "idle_timeout must not be negative, got nan."),
        ({"retention": -0.5}, "retention must not be negative, got -0.5."),
        ({"lease": 0}, "lease must be greater than 0, got 0."),
        ({"poll_interval": 0}, "poll_interval must be greater than 0, got 0."),
        ({"max_in_memory": 0}, "max_in_memory must be at least 1, got 0."),
    ],
)
def test_option_that_makes_no_sense_is_refused_by_its_name(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        loom.connect("memory://", **options)  # type: ignore[arg-type]


def test_zero_and_none_are_fine_where_they_mean_something() -> None:
    settings = Settings(idle_timeout=0, retention=0, max_in_memory=None)
    assert (settings.idle_timeout, settings.retention, settings.max_in_memory) == (0, 0, None)
    assert Settings(idle_timeout=None).idle_timeout is None


def test_hosts_may_be_a_comma_list_as_in_the_environment() -> None:
    assert Settings(http_allow="localhost:8080,10.0.0.0/8").allowed_hosts == ("localhost:8080", "10.0.0.0/8")
    assert Settings(http_allow=["localhost"]).allowed_hosts == ("localhost",)
    assert Settings().allowed_hosts is None
    with pytest.raises(TypeError, match=r"http_allow must be a list of hosts, such as \['localhost:8080'\], got 5\."):
        loom.connect("memory://", http_allow=5)  # type: ignore[arg-type]
