"""The options of simulations: which seed, and how many ticks."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

CI_TICKS, DEV_TICKS = 40_000, 30_000
"""The long form is `make sim`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seed", type=int, default=None, help="simulate this seed alone")
    parser.addoption("--sim-ticks", type=int, default=None, help="how many ticks to simulate in all")


@pytest.fixture(autouse=True, scope="module")
def _less_garbage_collection() -> Iterator[None]:
    """Simulations leave little for it: looking less often saves a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*before)


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
