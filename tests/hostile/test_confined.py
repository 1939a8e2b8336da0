"""The limits that the hostile programs run under do end them."""

from __future__ import annotations

from pathlib import Path

from confined import confined


def test_a_program_within_its_limits(tmp_path: Path) -> None:
    ended = confined("print(len(b'x' * (50 << 20)))", cwd=tmp_path)
    assert ended.check() == "52428800\n"
    assert ended.peak_mib > 50


def test_a_program_that_takes_too_much_memory(tmp_path: Path) -> None:
    ended = confined("bytes(2 << 30)", cwd=tmp_path, memory_mib=256)
    assert (ended.code, "MemoryError" in ended.err) == (1, True)


def test_a_program_that_spins(tmp_path: Path) -> None:
    assert confined("while True: pass", cwd=tmp_path, cpu_s=1).code < 0
