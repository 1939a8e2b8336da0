"""The options of simulations: which seed, and how many ticks."""

from __future__ import annotations

import os

import pytest

CI_TICKS, DEV_TICKS = 500_000, 60_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seed", type=int, default=None, help="simulate this seed alone")
    parser.addoption("--sim-ticks", type=int, default=None, help="how many ticks to simulate in all")


@pytest.fixture(scope="session")
def sim_seed(request: pytest.FixtureRequest) -> int | None:
    """The one seed that was asked for. Without this directory on the command line there is no such option."""
    seed: int | None = request.config.getoption("--sim-seed", None)
    return seed


@pytest.fixture(scope="session")
def sim_ticks(request: pytest.FixtureRequest) -> int:
    """How many ticks are simulated in all."""
    asked: int | None = request.config.getoption("--sim-ticks", None)
    return asked or (CI_TICKS if os.environ.get("CI", "").lower() in {"1", "true"} else DEV_TICKS)
