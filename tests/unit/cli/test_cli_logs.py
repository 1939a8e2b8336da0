"""What commands that work on runs log to stderr."""

from __future__ import annotations

import json
import logging

import pytest

from loom.cli.engine_process import Logs


def test_logs_are_written_as_asked_and_only_while_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("loom.server")
    handlers = list(logging.getLogger().handlers)
    with Logs("warning", "json").written() as let_out:
        let_out()
        logger.info("not this")
        logger.warning("Somebody brought %s.", "loom_0123456789ab_" + "s" * 43, extra={"run_id": "order-1"})
    assert logging.getLogger().handlers == handlers
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["run_id"]) == ("WARNING", "order-1")
    assert line["message"] == "Somebody brought loom_0123456789ab_***."
    with Logs("error", "text").written() as let_out:
        let_out()
        logger.warning("not this")
        logger.error("this")
    assert capsys.readouterr().err.endswith("ERROR loom.server: this\n")


def test_what_a_starting_process_logs_is_kept_until_it_has_started(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("loom.run")
    with Logs("info").written() as let_out:
        logger.info("Run a of w was recovered")
        assert capsys.readouterr().err == ""
        let_out()
        assert capsys.readouterr().err.endswith("INFO loom.run: Run a of w was recovered\n")
        logger.info("Run b of w was recovered")
        assert capsys.readouterr().err.endswith("Run b of w was recovered\n")
    with Logs("info").written():
        logger.error("It cannot start")
    assert capsys.readouterr().err == "", "that is raised, and told once"
