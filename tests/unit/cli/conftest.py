"""Lets the tests of the command line import `cli_rig`, which stands beside them, and gives them a place to work in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the workflows of `shop.py`; what is loaded from it is forgotten afterwards."""
    from cli_rig import SHOP

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOOM_STORE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    (tmp_path / "shop.py").write_text(SHOP)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def flows(shop: Path) -> Path:
    """The same directory with the flows of `flow_rig`."""
    from flow_rig import write_flows

    write_flows(shop)
    return shop
