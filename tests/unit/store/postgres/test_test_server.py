"""The server that tests use: as root it needs an account, which a PATH without sbin must not keep it from."""

from __future__ import annotations

import shutil
import sys

import pytest
from postgres_server import find_useradd

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no root")


@pytest.mark.skipif(shutil.which("useradd", path="/usr/sbin:/sbin") is None, reason="no useradd on this machine")
def test_useradd_is_found_outside_of_the_path() -> None:
    assert find_useradd("/usr/bin:/bin").endswith("sbin/useradd")


def test_without_useradd_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_options: None)
    with pytest.raises(RuntimeError) as caught:
        find_useradd("")
    assert "account named pgserver, or install useradd" in str(caught.value)
    assert "\n" not in str(caught.value)
