"""The command line of simulations."""

from __future__ import annotations

import pytest

from loom.testing import SimulationFailure, simulation_sweep
from loom.testing.simulation_sweep import main


def test_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sim-seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "seed: 3" in shown
    assert "digest: " in shown


def test_as_many_seeds_as_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sim-seed", "3", "--ticks", "2000", "--jobs", "1"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert int(first.split()[0].replace(",", "")) >= 2000
    assert "CommitRun" in last


def test_a_failure_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*, seed: int) -> None:
        raise SimulationFailure(f"something with seed {seed}")

    monkeypatch.setattr(simulation_sweep, "simulate", fail)
    assert main(["--sim-seed", "5"]) == 1
    assert "something with seed 5" in capsys.readouterr().out
