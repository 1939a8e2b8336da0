"""Draw the pictures of the docs from the code's own tables.

`make pictures` writes docs/images/*.svg; `make pictures ARGS=--check` only compares them with the code.

Where a state stands and how its main arrows run is decided here. What changes into what, and why, comes from the
tables. A change without an arrow is written into the box of the state that it leaves, so none can be missing.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from drawing import Drawing, Kind, Point, Rect, Text

from loom.core import invariants, run_life
from loom.core.commands import WorkflowCommand
from loom.core.ticks import WorkflowTick
from loom.runtime.durable import residence

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"

Rows = Iterable[tuple[str, str, str]]
"""Changes: the state before, the state after, and what happens."""


class PictureError(Exception):
    """The code and the layout of a picture do not fit any more; the text says what to edit."""


class Changes:
    """The changes of a table: those with an arrow, and the others, which stand in boxes."""

    def __init__(self, rows: Rows, arrows: set[tuple[str, str]]) -> None:
        self._facts: dict[tuple[str, str], list[str]] = {}
        for before, after, fact in rows:
            self._facts.setdefault((before, after), []).append(fact)
        if unknown := arrows - self._facts.keys():
            raise PictureError(f"The table has no change for these arrows any more: {sorted(unknown)}")
        self._arrows = arrows

    def fact(self, before: str, after: str) -> str:
        """Say what makes a change happen that has an arrow."""
        return " / ".join(self._facts[before, after])

    def others(self, state: str) -> list[Text]:
        """List what else leaves a state, by where it leads."""
        return [
            Text(f"→ {after}: {' / '.join(facts)}", 11, "soft")
            for (before, after), facts in self._facts.items()
            if before == state and (before, after) not in self._arrows
        ]


def _state(drawing: Drawing, changes: Changes, name: str, area: Rect, kind: Kind = "plain") -> Rect:
    """Draw the box of a state, as high as its texts need; the area says how high it may be."""
    texts = [Text(name, 14, "strong"), *changes.others(name)]
    needed = sum(text.height(area.w - 20) for text in texts) + 20 if len(texts) > 1 else area.h
    return drawing.box(Rect(area.x, area.y, area.w, min(needed, area.h)), texts, kind, name)


def _check_states(placed: Iterable[str], table: Iterable[str]) -> None:
    if odd := {*placed} ^ {*table}:
        raise PictureError(f"States without a place in the picture, or the other way round: {sorted(odd)}")


# --- the life of a work item --------------------------------------------------------------------------------------


def work_item() -> Drawing:
    """Draw the table of `loom.core.invariants`."""
    drawing = Drawing(
        "The life of a work item",
        "A work item is queued, executing, suspended, ready or delayed until it is settled or dropped.",
        960,
        560,
    )
    arrows = {
        ("new", "queued"), ("new", "executing"), ("queued", "executing"), ("executing", "suspended"),
        ("suspended", "ready"), ("ready", "executing"), ("executing", "delayed"), ("delayed", "queued"),
        ("executing", "settled"),
    }  # fmt: skip
    changes = Changes(((row.before, row.after, row.event) for row in invariants.TABLE), arrows)
    areas = {
        "new": Rect(30, 30, 90, 40),
        "queued": Rect(30, 150, 220, 92),
        "executing": Rect(370, 150, 230, 128),
        "suspended": Rect(710, 150, 220, 130),
        "delayed": Rect(30, 370, 220, 70),
        "ready": Rect(710, 370, 220, 70),
        "settled": Rect(405, 490, 160, 42),
        "dropped": Rect(770, 490, 160, 42),
    }
    kinds: dict[str, Kind] = {"executing": "accent", "settled": "good", "dropped": "bad", "delayed": "busy"}
    kinds |= {"suspended": "calm", "ready": "calm"}
    _check_states(areas, get_args(invariants.ItemState))
    at = {name: _state(drawing, changes, name, area, kinds.get(name, "plain")) for name, area in areas.items()}

    def say(before: str, after: str, x: float, y: float, width: float) -> None:
        drawing.label(Text(changes.fact(before, after), 12), Point(x, y), width)

    drawing.arrow(at["new"].bottom(), Point(75, 150))
    say("new", "queued", 86, 84, 190)
    drawing.arrow(at["new"].right(), Point(485, 50), at["executing"].top())
    say("new", "executing", 135, 56, 330)
    drawing.arrow(at["queued"].right(0.4), Point(370, at["queued"].right(0.4).y))
    say("queued", "executing", 264, 194, 100)
    drawing.arrow(at["executing"].right(0.3), Point(710, at["executing"].right(0.3).y))
    say("executing", "suspended", 609, 196, 96)
    drawing.arrow(at["suspended"].bottom(), at["ready"].top())
    say("suspended", "ready", 830, 298, 116)
    drawing.arrow(at["ready"].left(), Point(575, 405), Point(575, at["executing"].bottom().y))
    say("ready", "executing", 585, 345, 118)
    drawing.arrow(Point(420, at["executing"].bottom().y), Point(420, 405), at["delayed"].right())
    say("executing", "delayed", 262, 345, 150)
    drawing.arrow(at["delayed"].top(), at["queued"].bottom())
    say("delayed", "queued", 150, 296, 120)
    drawing.arrow(at["executing"].bottom(), at["settled"].top())
    say("executing", "settled", 496, 420, 210)
    return drawing


# --- the life of a run --------------------------------------------------------------------------------------------

_AWAKE, _RUNNING = ("at work", "asleep", "idle"), ("at work", "asleep", "idle", "paused")


def run_rows() -> list[tuple[str, str, str]]:
    """Return the table of `loom.core.run_life`, with the sets of states that it often uses under names."""
    names: dict[tuple[str, ...], tuple[str, ...]] = {_AWAKE: ("awake",), _RUNNING: ("running",)}
    return [
        (before, after, row.event)
        for row in run_life.TABLE
        for before in names.get(row.before, row.before)
        for after in names.get(row.after, row.after)
    ]


def run_life_picture() -> Drawing:
    """Draw the table of `loom.core.run_life`."""
    drawing = Drawing(
        "The life of a run",
        "A run is at work, asleep, idle, paused or parked until it is completed, failed or cancelled.",
        980,
        600,
    )
    arrows = {
        ("new", "at work"), ("at work", "asleep"), ("asleep", "at work"), ("at work", "idle"), ("idle", "at work"),
        ("awake", "paused"), ("paused", "awake"), ("running", "completed"), ("running", "failed"),
        ("failed", "running"), ("running", "cancelled"), ("running", "parked"), ("parked", "running"),
    }  # fmt: skip
    changes = Changes(run_rows(), arrows)
    running = drawing.zone(Rect(150, 24, 560, 424), Text("running", 12, "soft"))
    awake = drawing.zone(Rect(172, 54, 516, 254))
    areas = {
        "new": Rect(24, 90, 84, 40),
        "at work": Rect(190, 76, 130, 212),
        "asleep": Rect(500, 76, 170, 84),
        "idle": Rect(500, 204, 170, 84),
        "paused": Rect(190, 372, 310, 62),
        "parked": Rect(190, 516, 280, 68),
        "completed": Rect(824, 54, 134, 44),
        "failed": Rect(824, 210, 134, 44),
        "cancelled": Rect(824, 380, 134, 44),
    }
    kinds: dict[str, Kind] = {"at work": "accent", "asleep": "calm", "idle": "calm", "completed": "good"}
    kinds |= {"failed": "bad", "cancelled": "bad", "parked": "busy"}
    _check_states(areas, get_args(run_life.Life))
    at = {name: _state(drawing, changes, name, area, kinds.get(name, "plain")) for name, area in areas.items()}

    def say(before: str, after: str, x: float, y: float, width: float) -> None:
        drawing.label(Text(changes.fact(before, after), 12), Point(x, y), width)

    drawing.arrow(at["new"].right(), Point(190, 110))
    say("new", "at work", 24, 138, 110)
    for state, y in (("asleep", 76), ("idle", 204)):
        drawing.arrow(Point(320, y + 26), Point(500, y + 26))
        say("at work", state, 332, y + 5, 160)
        drawing.arrow(Point(500, y + 42), Point(320, y + 42))
        say(state, "at work", 332, y + 48, 160)
    drawing.arrow(Point(300, awake.bottom().y), Point(300, at["paused"].y))
    say("awake", "paused", 180, 332, 114)
    drawing.arrow(Point(360, at["paused"].y), Point(360, awake.bottom().y))
    say("paused", "awake", 370, 332, 200)
    drawing.arrow(Point(300, running.bottom().y), Point(300, at["parked"].y))
    say("running", "parked", 110, 474, 184)
    drawing.arrow(Point(360, at["parked"].y), Point(360, running.bottom().y))
    say("parked", "running", 370, 474, 280)
    drawing.arrow(Point(710, 76), at["completed"].left())
    say("running", "completed", 720, 84, 98)
    drawing.arrow(Point(710, 222), Point(824, 222))
    say("running", "failed", 720, 150, 98)
    drawing.arrow(Point(824, 242), Point(710, 242))
    say("failed", "running", 720, 250, 98)
    drawing.arrow(Point(710, 402), at["cancelled"].left())
    say("running", "cancelled", 720, 334, 98)
    return drawing


# --- the residence of a run ---------------------------------------------------------------------------------------


def residence_rows() -> list[tuple[str, str, str]]:
    """Return the changes of `loom.runtime.durable.residence` that change a state."""
    return [(row.before, row.after, row.fact) for row in residence.TABLE if row.before != row.after]


def residence_picture() -> Drawing:
    """Draw the table of `loom.runtime.durable.residence`."""
    drawing = Drawing(
        "The residence of a run in a process",
        "From absent a run is claimed and loaded, is active or idle in memory, and is released.",
        1090,
        790,
    )
    arrows = {
        ("absent", "starting"), ("absent", "claiming"), ("claiming", "queued"), ("queued", "claiming"),
        ("stranded", "claiming"), ("claiming", "loading"), ("starting", "active"), ("loading", "active"),
        ("active", "idle"), ("idle", "active"), ("idle", "releasing"), ("releasing", "active"),
        ("releasing", "draining"), ("draining", "absent"),
    }  # fmt: skip
    changes = Changes(residence_rows(), arrows)
    areas = {
        "absent": Rect(40, 60, 190, 64),
        "queued": Rect(40, 240, 190, 44),
        "stranded": Rect(40, 440, 190, 44),
        "starting": Rect(360, 60, 230, 90),
        "claiming": Rect(360, 226, 230, 96),
        "loading": Rect(360, 424, 230, 96),
        "active": Rect(720, 60, 230, 158),
        "idle": Rect(720, 290, 230, 90),
        "releasing": Rect(720, 448, 230, 138),
        "parking": Rect(360, 640, 230, 84),
        "draining": Rect(720, 654, 230, 44),
    }
    kinds: dict[str, Kind] = {"active": "accent", "idle": "calm", "stranded": "bad", "queued": "busy"}
    _check_states(areas, get_args(residence.State))
    drawing.zone(Rect(690, 24, 380, 560), Text("in memory", 12, "soft"))
    drawing.zone(Rect(340, 24, 270, 510), Text("on its way into memory", 12, "soft"))
    drawing.zone(Rect(340, 608, 270, 116), Text("gone, and the store is told why", 12, "soft"))
    at = {name: _state(drawing, changes, name, area, kinds.get(name, "plain")) for name, area in areas.items()}

    def say(before: str, after: str, x: float, y: float, width: float) -> None:
        drawing.label(Text(changes.fact(before, after), 12), Point(x, y), width)

    drawing.arrow(Point(230, 80), Point(360, 80))
    say("absent", "starting", 238, 60, 100)
    drawing.arrow(Point(135, 124), Point(135, 180), Point(320, 180), Point(320, 240), Point(360, 240))
    say("absent", "claiming", 146, 144, 190)
    drawing.arrow(Point(230, 254), Point(360, 254))
    say("queued", "claiming", 240, 234, 76)
    drawing.arrow(Point(360, 272), Point(230, 272))
    say("claiming", "queued", 240, 277, 76)
    drawing.arrow(at["stranded"].top(), Point(135, 306), Point(360, 306))
    say("stranded", "claiming", 146, 330, 120)
    drawing.arrow(at["claiming"].bottom(), at["loading"].top())
    say("claiming", "loading", 485, 350, 90)
    drawing.arrow(Point(590, 80), Point(720, 80))
    say("starting", "active", 622, 60, 60)
    drawing.arrow(Point(590, 472), Point(650, 472), Point(650, 140), Point(720, 140))
    say("loading", "active", 622, 478, 60)
    drawing.arrow(Point(790, at["active"].bottom().y), Point(790, 290))
    say("active", "idle", 800, 228, 60)
    drawing.arrow(Point(870, 290), Point(870, at["active"].bottom().y))
    say("idle", "active", 880, 266, 60)
    drawing.arrow(at["idle"].bottom(), at["releasing"].top())
    say("idle", "releasing", 726, 404, 104)
    drawing.arrow(Point(950, 500), Point(972, 500), Point(972, 140), Point(950, 140))
    say("releasing", "active", 980, 300, 90)
    drawing.arrow(at["releasing"].bottom(), at["draining"].top())
    say("releasing", "draining", 845, 596, 190)
    drawing.arrow(at["draining"].bottom(), Point(835, 760), Point(20, 760), Point(20, 92), Point(40, 92))
    say("draining", "absent", 40, 738, 140)
    return drawing


# --- the tick cycle -----------------------------------------------------------------------------------------------


def _names(union: Any, prefix: str) -> list[str]:
    return [each.__name__.removeprefix(prefix) for each in get_args(union)]


def _columns(drawing: Drawing, names: list[str], area: Rect, columns: int, *, size: float) -> None:
    rows = -(-len(names) // columns)
    for number, name in enumerate(names):
        at = Point(area.x + (number // rows) * area.w / columns, area.y + (number % rows) * size * 1.5)
        drawing.label(Text(name, size, "mono"), at, area.w / columns, halo=False)


def _panel(drawing: Drawing, area: Rect, title: str, says: str, names: list[str]) -> Rect:
    """A box with a heading and a list of names in two columns. The names are labels, so the box is a zone."""
    drawing.parts.append(
        f'<rect class="box" x="{area.x:g}" y="{area.y:g}" width="{area.w:g}" height="{area.h:g}" rx="7"/>'
    )
    drawing.frames.append(area)
    drawing.label(Text(title, 14, "strong"), Point(area.x + 12, area.y + 10), area.w - 24, halo=False)
    drawing.label(Text(says, 11.5, "soft"), Point(area.x + 12, area.y + 32), area.w - 24, halo=False)
    _columns(drawing, names, Rect(area.x + 12, area.y + 70, area.w - 20, area.h - 70), 2, size=10.5)
    return area


def tick_cycle() -> Drawing:
    """Draw the law, with the ticks and commands of `loom.core`."""
    drawing = Drawing(
        "The tick cycle",
        "Ticks and the state enter reduce; the next state and commands leave it. One commit stores them. Then effects "
        "happen, and what they bring is the next tick.",
        960,
        560,
    )
    drawing.zone(Rect(336, 24, 288, 316), Text("pure: no clock, no chance, no I/O", 11.5, "soft"))
    ticks = _panel(
        drawing, Rect(24, 60, 270, 280), "ticks", "what happened; each carries its time", _names(WorkflowTick, "Tick")
    )
    commands = _panel(
        drawing, Rect(666, 60, 270, 280), "commands", "what to do, in order", _names(WorkflowCommand, "Command")
    )
    state = drawing.box(Rect(390, 64, 180, 64), [Text("state", 14, "strong"), Text("immutable, shared", 11, "soft")])
    reduce = drawing.box(
        Rect(366, 196, 228, 108),
        [
            Text("reduce", 14, "strong"),
            Text("kernel: workers, attempts, timers, waits, lifecycle", 11, "soft"),
            Text("planner: what next? steps or flows", 11, "soft"),
        ],
        "accent",
    )
    drawing.arrow(Point(294, 250), reduce.left())
    drawing.arrow(reduce.right(), Point(666, 250))
    drawing.arrow(Point(440, state.bottom().y), Point(440, reduce.y))
    drawing.arrow(Point(520, reduce.y), Point(520, state.bottom().y))
    drawing.label(Text("state", 12), Point(396, 150), 44)
    drawing.label(Text("state'", 12), Point(530, 150), 60)
    commit = drawing.box(
        Rect(666, 420, 270, 96),
        [
            Text("one commit", 14, "strong"),
            Text("ticks, outbox, timers and published events, in one transaction", 11, "soft"),
            Text("→ the event stream, read by cursor", 11, "soft"),
        ],
        "good",
    )
    effects = drawing.box(
        Rect(366, 420, 228, 96),
        [
            Text("effects", 14, "strong"),
            Text("bodies of steps run, requests go out, timers are armed: only after the commit", 11, "soft"),
        ],
        "busy",
    )
    outside = drawing.box(
        Rect(24, 420, 270, 96),
        [
            Text("the next tick", 14, "strong"),
            Text("results of bodies, fired timers, and what callers send: starts, events, cancels", 11, "soft"),
        ],
    )
    drawing.arrow(commands.bottom(), commit.top())
    drawing.label(Text("when the run is blocked", 12), Point(812, 368), 140)
    drawing.arrow(commit.left(), effects.right())
    drawing.arrow(effects.left(), outside.right())
    drawing.arrow(outside.top(), ticks.bottom())
    return drawing


# --- the architecture ---------------------------------------------------------------------------------------------

_OUTSIDE = {
    "cli": "terminal, scripts",
    "server": "browsers, programs: HTTP",
    "temporal": "a Temporal cluster",
    "store": "SQLite, PostgreSQL",
    "effects": "services, models, people",
}
"""What a package has to do with outside of the process."""


def layers() -> list[list[str]]:
    """Read the packages, from the top layer down, from the contract that import-linter checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [found] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [re.findall(r"\w+", line) for line in found]


def pure_packages() -> set[str]:
    """Read which packages know no clock, chance or I/O, from the contract that import-linter checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [names] = [contract["source_modules"] for contract in contracts if "no clock" in contract["name"]]
    return {name.removeprefix("loom.") for name in names if name.count(".") == 1}


def purposes() -> dict[str, str]:
    """Read what each package holds, from the table in CONTRIBUTING.md."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| `src/loom/(\w+)` \| (.+) \|$", page, re.MULTILINE)
    return {name: re.split(r"; | in `", text)[0].replace("`", "") for name, text in rows}


def architecture() -> Drawing:
    """Draw the packages in their layers, and what they meet outside."""
    rows, texts, pure = layers(), purposes(), pure_packages()
    if odd := {name for row in rows for name in row} ^ texts.keys():
        raise PictureError(f"CONTRIBUTING.md and the layers in pyproject.toml differ: {sorted(odd)}")
    width, left, gap = 700.0, 24.0, 12.0
    widths = [(width - gap * (len(row) - 1)) / len(row) for row in rows]
    tall = [
        max(Text(texts[name], 11).height(each - 20) for name in row) + 38
        for row, each in zip(rows, widths, strict=True)
    ]
    drawing = Drawing(
        "The packages of Loom",
        "Imports point down only: " + " > ".join(" | ".join(row) for row in rows),
        980,
        sum(tall) + gap * len(rows) + 64,
    )
    y = 24.0
    for row, each, height in zip(rows, widths, tall, strict=True):
        for place, name in enumerate(row):
            area = Rect(left + place * (each + gap), y, each, height)
            kind: Kind = "accent" if name in pure else "plain"
            drawing.box(area, [Text(f"loom.{name}", 13, "strong"), Text(texts[name], 11, "soft")], kind, name)
        outside = [_OUTSIDE[name] for name in row if name in _OUTSIDE]
        for place, text in enumerate(outside):
            share = height / len(outside)
            area = Rect(780, y + share * place + 2, 176, share - 4)
            drawing.box(area, [Text(text, 11.5)], "busy")
            drawing.arrow(Point(left + width + 4, area.left().y), area.left(), both=True)
        y += height + gap
    says = "Imports point down only. Blue: pure, without clock, chance or I/O. Yellow: outside of the process."
    drawing.label(Text(says, 12), Point(left, y + 8), 930)
    return drawing


PICTURES: dict[str, Callable[[], Drawing]] = {
    "architecture": architecture,
    "tick-cycle": tick_cycle,
    "run-life": run_life_picture,
    "work-item": work_item,
    "residence": residence_picture,
}
"""How each picture is drawn, by the name of its file."""


def stale() -> list[str]:
    """Name the pictures in docs/images that are not what the code gives."""
    return [name for name in PICTURES if not _is_current(name)]


def _is_current(name: str) -> bool:
    path = IMAGES / f"{name}.svg"
    return path.exists() and path.read_text("utf-8") == PICTURES[name]().svg()


def main(arguments: list[str] | None = None) -> int:
    """Write the pictures, or say which ones are stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture is stale")
    options = parser.parse_args(arguments)
    if options.check:
        return _report(stale())
    wrong = [f"{name}: {problem}" for name, draw in PICTURES.items() for problem in draw().problems()]
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), "utf-8")
    sys.stderr.write("".join(f"{problem}\n" for problem in wrong))
    return 1 if wrong else 0


def _report(names: list[str]) -> int:
    for name in names:
        sys.stderr.write(f"docs/images/{name}.svg is stale: run `make pictures`\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
