"""The options of `loom.connect`."""

from __future__ import annotations

import msgspec
import pytest

import loom
from loom.runtime.durable.connect_options import ConnectOptions, settings_of
from loom.runtime.durable.settings import Settings
from loom.temporal.settings import TemporalSettings


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


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5.0), ("2h", 7200.0), ("0.5", 0.5), ("1 d", 86400.0)])
def test_lengths_of_time_may_be_texts(text: str, seconds: float) -> None:
    assert settings_of(Settings, {"idle_timeout": text, "lease": text}).idle_timeout == seconds


def test_an_option_is_named_in_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match=r"^idle_timeout: '5 parsecs' is not a length of time"):
        loom.connect("memory://", idle_timeout="5 parsecs")
    with pytest.raises(TypeError, match=r"no option 'idle_timout' here\. Did you mean 'idle_timeout'\?"):
        loom.connect("memory://", idle_timout=5)  # type: ignore[call-arg]


def test_every_setting_is_an_option_by_name() -> None:
    fields = {field.name for kind in (Settings, TemporalSettings) for field in msgspec.structs.fields(kind)}
    assert set(ConnectOptions.__annotations__) == fields


def test_decorate_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(TypeError, match=r"^decorate must be a function that takes the adapter of a run, got 'log'\.$"):
        loom.connect("memory://", decorate="log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^decorate is for runs that this process moves, on memory://, sqlite://"):
        settings_of(TemporalSettings, {"decorate": lambda inner: inner})
