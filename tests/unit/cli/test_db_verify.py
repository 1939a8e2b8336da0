from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_rig import DOUBLE, data, failure, good, loom

pytestmark = pytest.mark.usefixtures("shop")

KEY = "k1:" + base64.b64encode(b"k" * 32).decode()


def change(sql: str) -> None:
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.executescript(sql)


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
        "unsigned_head": 0,
        "chained": 0,
        "unchecked": 0,
        "unchained": 0,
        "empty": 0,
        "broken": 0,
        "problems": [],
        "damage": [],
        "unsigned_heads": [],
        "heads_signed_since": None,
        "anchor": None,
    }
    monkeypatch.delenv("LOOM_JOURNAL_KEYS")
    assert good("db", "verify") == "Runs: 1 (1 unchecked).\n"
    assert "uses the journal key 'k1'" in failure(3, "run", DOUBLE, "--input", '{"number": 1}')
    monkeypatch.setenv("LOOM_JOURNAL_KEYS", "k1:short")
    assert "the key 'k1' must be 32 bytes" in failure(3, "run", DOUBLE, "--input", '{"number": 1}')


UNSEEN = "Not looked for: runs that were put back to an earlier state. Only `--anchor FILE` shows them."


def test_an_upgrade_with_the_keys_signs_rows_once_and_demands_it_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_JOURNAL_KEYS", KEY)
    run("one", "two")
    change("UPDATE runs SET mac = NULL")
    assert good("db", "verify").splitlines() == [
        "Runs: 2 (2 unsigned_head).",
        "Rows without a signature: 'two', 'one'.",
        "Rows may be without a signature here: `loom db upgrade` signs them, and then every row needs one.",
        UNSEEN,
    ]
    assert data("db", "verify")["unsigned_heads"] == ["two", "one"]
    done = good("db", "upgrade").splitlines()
    assert done[:2] == ["The database is up to date.", "Signed the rows of 2 runs."]
    assert done[2].startswith("Every row is signed since 20")
    again = data("db", "upgrade")
    assert (again["heads_signed"], again["problems"]) == (0, [])
    assert good("db", "verify").splitlines() == ["Runs: 2 (2 signed).", UNSEEN]
    assert data("db", "verify")["heads_signed_since"] == again["heads_signed_since"]
    change("UPDATE runs SET mac = NULL WHERE run_id = 'one'")
    broken = loom("db", "verify")
    assert broken.exit_code == 1
    assert "Run 'one': its row is not what was written: its signature is missing" in broken.stdout
    monkeypatch.delenv("LOOM_JOURNAL_KEYS")
    assert "to start or retry one, the keys are needed" in failure(3, "workflow", "start", "Double")
    assert good("db", "upgrade") == "The database is up to date.\n"


def test_an_upgrade_names_broken_runs_and_does_not_sign_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_JOURNAL_KEYS", KEY)
    run("one", "two")
    change("UPDATE runs SET mac = NULL")
    change("UPDATE runs SET ticks = 99 WHERE run_id = 'two'")
    done = loom("db", "upgrade")
    assert done.exit_code == 1
    assert "Run 'two': " in done.stdout
    assert "Signed the rows of 1 runs." in done.stdout


def test_an_anchor_finds_what_was_put_back(monkeypatch: pytest.MonkeyPatch, shop: Path) -> None:
    good("db", "upgrade")
    assert "LOOM_JOURNAL_KEYS" in failure(2, "db", "anchor")
    monkeypatch.setenv("LOOM_JOURNAL_KEYS", KEY)
    good("db", "upgrade")
    run("one", "two")
    (shop / "anchor").write_text(good("db", "anchor"))
    assert good("db", "verify", "--anchor", "anchor").splitlines() == ["Runs: 2 (2 signed)."]
    assert data("db", "verify", "--anchor", "anchor")["anchor"] == []
    change("DELETE FROM runs WHERE run_id = 'two'")
    lacking = loom("db", "verify", "--anchor", "anchor")
    assert (lacking.exit_code, lacking.stdout.splitlines()[0][:19]) == (1, "Run 'two' is gone: ")
    assert "Run 'two' is gone: " in good("db", "verify", "--anchor", "anchor", "--allow-gone")
    (shop / "anchor").write_text((shop / "anchor").read_text().replace("completed", "cancelled"))
    assert "The anchor was changed" in failure(1, "db", "verify", "--anchor", "anchor")
    assert "leave out --run" in failure(2, "db", "verify", "--anchor", "anchor", "--run", "one")


def test_what_sqlite_finds_wrong_with_its_file() -> None:
    run("one")
    change(
        """PRAGMA writable_schema = ON;
        UPDATE sqlite_master SET sql = replace(sql, 'paused = 1', 'paused = 0') WHERE name = 'runs_paused'"""
    )
    damaged = loom("db", "verify")
    assert damaged.exit_code == 1
    lines = damaged.stdout.splitlines()
    assert lines[0] == "The file is damaged: row 1 missing from index runs_paused"
    assert lines[-1] == "Runs: 1 (1 chained)."
    assert loom("db", "verify", "--json").exit_code == 1
    assert good("db", "verify", "--run", "one") == "Runs: 1 (1 chained).\n"


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


def test_a_missing_payload_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_PAYLOADS", (tmp_path / "payloads").as_uri())
    monkeypatch.setenv("LOOM_PAYLOADS_ABOVE", "64")
    run("one")
    assert good("db", "verify") == "Runs: 1 (1 chained).\n"
    for file in (tmp_path / "payloads").glob("*/*/*/p*"):
        file.unlink()
    broken = loom("db", "verify")
    assert broken.exit_code == 1
    assert "is missing in the folder" in broken.output
    assert good("runs", "list").count("one") == 1
    monkeypatch.delenv("LOOM_PAYLOADS")
    assert "LOOM_PAYLOADS" in loom("db", "verify").output
