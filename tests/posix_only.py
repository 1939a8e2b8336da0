"""Which tests need POSIX: signals that kill, process groups, modes and links of files, `/proc`.

They have the marker `posix`, and are not collected on a system without it. `tests/tidy/test_platforms.py` finds files
that use such things and are not listed here.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent

FOLDERS = ("browser", "faults", "first_week", "hostile", "integration", "kill")
"""Folders of tests that end, stop or confine other processes, or need a server that is started so."""
FILES = (
    "docs/test_terminals.py",
    "security/test_files.py",
    "unit/cli/test_changes_command.py",
    "unit/cli/test_flow_run.py",
    "unit/cli/test_over_server.py",
    "unit/cli/test_over_temporal.py",
    "unit/cli/test_review_cli.py",
    "unit/cli/test_work_commands.py",
    "unit/runtime/test_project.py",
    "unit/store/sqlite/test_engine.py",
    "unit/store/sqlite/test_opening.py",
)

USES = re.compile(
    r"os\.kill|SIGKILL|SIGTERM|SIGSTOP|signal\.SIG|import (fcntl|resource|pty|pwd)\b|os\.fork|/proc/|gete?uid|"
    r"\.chmod\(|preexec_fn|start_new_session|killpg|AF_UNIX|mkfifo|symlink_to|os\.symlink"
)
"""What Windows lacks, or has with another meaning."""


def needs_posix(path: Path) -> bool:
    """Say whether the tests in a file or folder need it."""
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    return name.partition("/")[0] in FOLDERS or name in FILES
