"""`host.json`: what has an equal here, and what is only named."""

from __future__ import annotations

from typing import Any

import pytest

from loom.flows.limits import Limits
from loom.runtime.host_settings import HostSettings, host_settings


def read(**settings: Any) -> tuple[HostSettings, list[tuple[str, str]]]:
    found, problems = host_settings({"version": "2.0", "extensions": {"workflow": {"settings": settings}}})
    return found, [(problem.severity, problem.message) for problem in problems]


def test_limits_of_loops_and_the_retention_map() -> None:
    found, problems = read(
        **{
            "Runtime.Backend.MaximumUntilLimitCount": "9000",
            "Runtime.Backend.ForeachDefaultDegreeOfParallelism": 5,
            "Runtime.FlowRetentionThreshold": "7.01:00:00",
        }
    )
    assert (found, problems) == (HostSettings(9000, 5, 7 * 86_400.0 + 3_600.0), [])
    assert found.limits(Limits()) == Limits(max_until_iterations=9000, foreach_width=5)
    assert HostSettings().limits(Limits(max_iterations=7)) == Limits(max_iterations=7)


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("Runtime.FlowRetentionThreshold", "30 days", "a time such as 90.00:00:00"),
        ("Runtime.FlowRetentionThreshold", "00:00:00", "a time such as 90.00:00:00"),
        ("Runtime.Backend.MaximumUntilLimitCount", 0, "a number above 0"),
        ("Runtime.Backend.ForeachDefaultDegreeOfParallelism", True, "a number above 0"),
    ],
)
def test_a_value_of_the_wrong_form_is_an_error(name: str, value: Any, form: str) -> None:
    assert read(**{name: value}) == (HostSettings(), [("error", f"this must be {form}, not {value!r}")])


def test_the_rest_is_named() -> None:
    nothing = ("warning", "this setting has no equal in Loom")
    assert read(**{"Runtime.Backend.FlowRunTimeout": "1.00:00:00"})[1] == [nothing]
    _, problems = host_settings({"extensions": {"http": {"routePrefix": "x"}}, "concurrency": {}, "logging": {}})
    assert [problem.path for problem in problems] == ["concurrency", "extensions.http.routePrefix"]
    _, problems = host_settings({"extensions": {"workflow": []}})
    assert [problem.path for problem in problems] == ["extensions.workflow"]
