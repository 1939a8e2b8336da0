from __future__ import annotations

import base64
import sqlite3
from contextlib import closing

import pytest
from cli_rig import DOUBLE, data, failure, good, loom

pytestmark = pytest.mark.usefixtures("shop")

KEY = "k1:" + base64.b64encode(b"k" * 32).decode()


def change(sql: str) -> None:
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.execute(sql)


def run(*run_ids: str) -> None:
    for run_id in run_ids:
        good("run", DOUBLE, "--input", '{"number": 1}', "--run-id", run_id)


def test_sound_runs_and_broken_ones() -> None:
    good("db", "upgrade")
    assert good("db", "verify") == "Runs: 0.\n"
    run("one", "two")
    assert good("db", "verify") == "Runs: 2 (2 chained).\n"
    assert good("db", "verify", "--run", "one") == "Runs: 1 (1 chained).\n"
    change("DELETE FROM chunks WHERE id = (SELECT MIN(id) FROM chunks)")
    broken = loom("db", "verify")
    assert broken.exit_code == 1
    assert broken.stdout.splitlines()[0].startswith("Run 'one': the chunk of ")
    assert broken.stdout.splitlines()[1] == "Runs: 2 (1 chained, 1 broken)."
    assert good("db", "verify", "--run", "two") == "Runs: 1 (1 chained).\n"
    for_programs = loom("db", "verify", "--json")
    assert for_programs.exit_code == 1
    assert '"run_id": "one"' in for_programs.stdout
    assert "'nobody' was not found" in failure(1, "db", "verify", "--run", "nobody")


def test_signed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_JOURNAL_KEYS", KEY)
    run("one")
    assert data("db", "verify") == {
        "runs": 1,
        "signed": 1,
        "chained": 0,
        "unchecked": 0,
        "unchained": 0,
        "empty": 0,
        "broken": 0,
        "problems": [],
    }
    monkeypatch.delenv("LOOM_JOURNAL_KEYS")
    assert good("db", "verify") == "Runs: 1 (1 unchecked).\n"
    assert "uses the journal key 'k1'" in failure(3, "run", DOUBLE, "--input", '{"number": 1}')
    monkeypatch.setenv("LOOM_JOURNAL_KEYS", "k1:short")
    assert "the key 'k1' must be 32 bytes" in failure(3, "run", DOUBLE, "--input", '{"number": 1}')


def test_encrypted_runs_by_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_ENCRYPTION_KEYS", KEY)
    good("db", "upgrade")
    good("run", DOUBLE, "--input", '{"number": 21}', "--run-id", "secret")
    assert good("db", "verify") == "Runs: 1 (1 chained).\n"
    assert "what is stored" in good("workflow", "replay", "secret")
    monkeypatch.delenv("LOOM_ENCRYPTION_KEYS")
    for command in (["workflow", "list"], ["db", "verify"]):
        assert "This store uses the encryption key 'k1', and at hand is no key" in failure(3, *command)
    assert good("db", "upgrade") == "The database is up to date.\n"
    monkeypatch.setenv("LOOM_ENCRYPTION_KEYS", "plain")
    assert "LOOM_ENCRYPTION_KEYS has no key" in failure(2, "workflow", "list")
