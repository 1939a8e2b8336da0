from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from loom.cli import inspect_commands
from loom.cli.output import TextPage
from loom.store.errors import StoreUnavailable


def page(*lines: str) -> TextPage:
    found = TextPage()
    for line in lines:
        found.line(line)
    found.table(["run"], [["[b]order-1"]])
    return found


async def test_each_look_is_drawn_over_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        inspect_commands, "console", lambda: Console(file=screen, force_terminal=True, width=40, height=4)
    )
    monkeypatch.setattr(inspect_commands, "INTERVAL_S", 0.0)
    looks = iter([(page("first"), False), (page("second", *"abcdef"), False), (page("third", "\x1b[2J"), True)])

    async def look(runs: Any) -> tuple[TextPage, bool]:
        assert runs == "the runs"
        return next(looks)

    await inspect_commands.watched("the runs", look)  # type: ignore[arg-type]
    drawn = screen.getvalue()
    first, second, third = (drawn.index(word) for word in ("first", "second", "third"))
    assert first < second < third
    assert "\x1b[1A" in drawn[first:second], "up again before the next one"
    assert "f\n" not in drawn[second:third], "what does not fit is cut meanwhile"
    assert "\x1b[2J" not in drawn, "what comes from runs steers no terminal"
    last = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", drawn[third:])
    assert "\\x1b[2J" in last
    assert "[b]order-1" in last
    assert drawn.rstrip().endswith("\x1b[?25h"), "the cursor is back"


async def test_who_is_gone_for_a_moment_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspect_commands, "INTERVAL_S", 0.0)
    looks = iter([(page("first"), False), None, None, (page("second"), True)])

    async def look(_: Any) -> tuple[TextPage, bool]:
        found = next(looks)
        if found is None:
            raise StoreUnavailable("gone")
        return found

    await inspect_commands.watched("the runs", look)  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert shown.index("first") < shown.index("second")


@pytest.mark.parametrize("patience", [30.0, 0.0])
async def test_who_was_never_there_or_stays_away_is_told(patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_commands, "INTERVAL_S", 0.0)
    monkeypatch.setattr(inspect_commands, "PATIENCE_S", patience)
    looks = iter([(page("first"), False)] if patience == 0 else [])

    async def look(_: Any) -> tuple[TextPage, bool]:
        for found in looks:
            return found
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        await inspect_commands.watched("the runs", look)  # type: ignore[arg-type]
