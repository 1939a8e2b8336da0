"""Draw boxes, arrows and labels as SVG, readable in light and dark, and tell what overlaps.

No text is measured by a browser: widths are estimated for a wide font, so that text has room in every other one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Anchor = Literal["start", "middle", "end"]
Kind = Literal["plain", "good", "bad", "busy", "calm", "accent"]

_STYLE = """
  svg { --bg: #ffffff; --panel: #f6f8fa; --line: #8c959f; --ink: #1f2328; --soft: #57606a; --zone: #d0d7de;
    --accent: #0550ae; --good: #1a7f37; --bad: #b42318; --busy: #9a6700; --calm: #6639ba; }
  @media (prefers-color-scheme: dark) {
    svg { --bg: #0d1117; --panel: #161b22; --line: #7d8590; --ink: #e6edf3; --soft: #9da7b1; --zone: #3d444d;
      --accent: #58a6ff; --good: #3fb950; --bad: #ff7b72; --busy: #d29922; --calm: #bc8cff; }
  }
  text { font-family: "Segoe UI", system-ui, -apple-system, "DejaVu Sans", sans-serif; fill: var(--ink); }
  .mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .soft { fill: var(--soft); }
  .strong { font-weight: 600; }
  .halo { paint-order: stroke; stroke: var(--bg); stroke-width: 5px; stroke-linejoin: round; }
  .canvas { fill: var(--bg); }
  .box { fill: var(--panel); stroke: var(--line); stroke-width: 1.2; }
  .zone { fill: none; stroke: var(--zone); stroke-width: 1.2; stroke-dasharray: 5 4; }
  .arrow { fill: none; stroke: var(--line); stroke-width: 1.5; }
  .head { fill: var(--line); }
  .good { stroke: var(--good); } .bad { stroke: var(--bad); } .busy { stroke: var(--busy); }
  .calm { stroke: var(--calm); } .accent { stroke: var(--accent); }
"""
_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]/ "), frozenset("mwMWOQGD@→—")
_LEADING = 1.36


class Point(NamedTuple):
    """A place on the canvas, in pixels from its upper left corner."""

    x: float
    y: float


@dataclass(frozen=True)
class Rect:
    """An area of the canvas."""

    x: float
    y: float
    w: float
    h: float

    def left(self, part: float = 0.5) -> Point:
        """Return a point of the left edge; 0 is its top."""
        return Point(self.x, self.y + self.h * part)

    def right(self, part: float = 0.5) -> Point:
        """Return a point of the right edge; 0 is its top."""
        return Point(self.x + self.w, self.y + self.h * part)

    def top(self, part: float = 0.5) -> Point:
        """Return a point of the upper edge; 0 is its left end."""
        return Point(self.x + self.w * part, self.y)

    def bottom(self, part: float = 0.5) -> Point:
        """Return a point of the lower edge; 0 is its left end."""
        return Point(self.x + self.w * part, self.y + self.h)

    def overlaps(self, other: Rect) -> bool:
        """Say whether the two have an area in common."""
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )

    def shrunk(self, by: float) -> Rect:
        """Return the area without its rim."""
        return Rect(self.x + by, self.y + by, max(self.w - 2 * by, 0), max(self.h - 2 * by, 0))

    def holds(self, other: Rect) -> bool:
        """Say whether the other lies within this one."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.w <= self.x + self.w
            and other.y + other.h <= self.y + self.h
        )


def width_of(text: str, size: float, *, mono: bool = False, strong: bool = False) -> float:
    """Estimate how wide a text is at most."""
    if mono:
        return len(text) * size * 0.605
    ems = sum(0.37 if char in _NARROW else 0.9 if char in _WIDE else 0.68 if char.isupper() else 0.6 for char in text)
    return ems * size * (1.07 if strong else 1.0)


def wrapped(text: str, width: float, size: float, *, mono: bool = False) -> list[str]:
    """Break a text into lines that are no wider than this; a word alone may be wider."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size, mono=mono) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True)
class Text:
    """Some lines in one size."""

    content: str
    size: float = 12
    style: str = ""
    """The classes of the style sheet that it has."""

    def lines(self, width: float) -> list[str]:
        """Break it for this width."""
        return wrapped(self.content, width, self.size, mono="mono" in self.style)

    def height(self, width: float) -> float:
        """Return how high it is, broken for this width."""
        return len(self.lines(width)) * self.size * _LEADING


@dataclass
class Drawing:
    """A picture under way: what was drawn, and the areas to compare."""

    title: str
    text: str
    """What a reader who cannot see the picture is told."""
    width: float
    height: float
    parts: list[str] = field(default_factory=list)
    boxes: list[tuple[str, Rect]] = field(default_factory=list)
    frames: list[Rect] = field(default_factory=list)
    labels: list[tuple[str, Rect]] = field(default_factory=list)
    segments: list[tuple[str, Point, Point]] = field(default_factory=list)
    ends: list[Point] = field(default_factory=list)
    too_wide: list[str] = field(default_factory=list)

    def box(self, area: Rect, texts: Sequence[Text], kind: Kind = "plain", name: str = "") -> Rect:
        """Draw a box with texts from its top; the first is in the middle if it is the only one."""
        self.parts.append(
            f'<rect class="box {kind}" x="{area.x:g}" y="{area.y:g}" width="{area.w:g}" height="{area.h:g}" rx="7"/>'
        )
        inner = area.w - 20
        used = sum(text.height(inner) for text in texts)
        y = area.y + max((area.h - used) / 2 if len(texts) == 1 else 9, 0)
        for text in texts:
            anchor: Anchor = "middle" if len(texts) == 1 else "start"
            x = area.x + (area.w / 2 if anchor == "middle" else 10)
            for line in text.lines(inner):
                self._line(x, y + text.size * 1.02, line, text, anchor)
                y += text.size * _LEADING
                self._check_width(line, text, inner)
        if y > area.y + area.h + 0.5:
            self.too_wide.append(f"{name or texts[0].content}: the box is {y - area.y - area.h:.0f} too low")
        self.boxes.append((name or texts[0].content, area))
        return area

    def zone(self, area: Rect, text: Text | None = None) -> Rect:
        """Draw a frame around other things, with a text in its upper left corner."""
        self.parts.append(
            f'<rect class="zone" x="{area.x:g}" y="{area.y:g}" width="{area.w:g}" height="{area.h:g}" rx="12"/>'
        )
        self.frames.append(area)
        if text is not None:
            self.label(text, Point(area.x + 14, area.y + 8), area.w - 28)
        return area

    def label(self, text: Text, at: Point, width: float, anchor: Anchor = "start", *, halo: bool = True) -> Rect:
        """Write a text with its upper edge at a point, and keep its place free. A halo sets it off from lines."""
        lines = text.lines(width)
        widest = max(width_of(line, text.size, mono="mono" in text.style) for line in lines)
        for number, line in enumerate(lines):
            shown = Text(text.content, text.size, f"{text.style} halo".strip()) if halo else text
            self._line(at.x, at.y + text.size * (0.95 + number * _LEADING), line, shown, anchor)
            self._check_width(line, text, width)
        start = {"start": at.x, "middle": at.x - widest / 2, "end": at.x - widest}[anchor]
        area = Rect(start, at.y, widest, len(lines) * text.size * _LEADING)
        self.labels.append((text.content, area))
        return area

    def arrow(self, *points: Point, name: str = "", both: bool = False, kind: Kind = "plain") -> None:
        """Draw an arrow along right-angled segments, with round corners."""
        path = f"M{points[0].x:g} {points[0].y:g}"
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            start, end = _toward(corner, before), _toward(corner, after)
            path += f" L{start.x:g} {start.y:g} Q{corner.x:g} {corner.y:g} {end.x:g} {end.y:g}"
        path += f" L{points[-1].x:g} {points[-1].y:g}"
        begin = ' marker-start="url(#back)"' if both else ""
        self.parts.append(f'<path class="arrow {kind}" d="{path}" marker-end="url(#tip)"{begin}/>')
        self.ends += [points[0], points[-1]]
        self.segments += [(name or "an arrow", one, other) for one, other in itertools.pairwise(points)]

    def _line(self, x: float, y: float, line: str, text: Text, anchor: Anchor) -> None:
        style = f' class="{text.style}"' if text.style else ""
        at = f'x="{x:g}" y="{y:.1f}" font-size="{text.size:g}"'
        placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f"<text{style} {at}{placed}>{escape(line)}</text>")

    def _check_width(self, line: str, text: Text, width: float) -> None:
        if width_of(line, text.size, mono="mono" in text.style, strong="strong" in text.style) > width + 0.5:
            self.too_wide.append(f"'{line}' is wider than {width:g}")

    def problems(self) -> Iterator[str]:
        """Tell what overlaps, crosses or has no room."""
        yield from self.too_wide
        canvas = Rect(0, 0, self.width, self.height).shrunk(4)
        areas = [*self.boxes, *self.labels]
        yield from (f"'{name}' leaves the picture" for name, area in areas if not canvas.holds(area))
        for (one, area), (other, place) in itertools.combinations(areas, 2):
            if area.overlaps(place):
                yield f"'{one}' overlaps '{other}'"
        edges = [area for _, area in self.boxes] + self.frames
        yield from (f"an arrow ends nowhere, at {end}" for end in self.ends if not any(_touches(end, e) for e in edges))
        for name, start, end in self.segments:
            line = Rect(min(start.x, end.x), min(start.y, end.y), abs(start.x - end.x), abs(start.y - end.y))
            yield from (f"{name} crosses the box '{box}'" for box, area in self.boxes if _crosses(line, area.shrunk(1)))
            yield from (f"{name} crosses the label '{text}'" for text, area in self.labels if _crosses(line, area))

    def svg(self) -> str:
        """Return the file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" aria-labelledby="title text">'
        )
        markers = "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="{at}" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path class="head" d="M0 0 L8 4 L0 8 Z"/></marker>'
            for name, at in (("tip", 8), ("back", 8))
        )
        canvas = f'<rect class="canvas" width="{self.width:g}" height="{self.height:g}" rx="10"/>'
        body = "\n".join(self.parts)
        words = f'<title id="title">{escape(self.title)}</title>\n<desc id="text">{escape(self.text)}</desc>'
        return f"{head}\n{words}\n<style>{_STYLE}</style>\n<defs>{markers}</defs>\n{canvas}\n{body}\n</svg>\n"


def _toward(corner: Point, other: Point) -> Point:
    """A point close to a corner, on the way to another point."""
    length = abs(other.x - corner.x) + abs(other.y - corner.y)
    part = min(9.0, length / 2) / length if length else 0.0
    return Point(corner.x + (other.x - corner.x) * part, corner.y + (other.y - corner.y) * part)


def _touches(end: Point, area: Rect) -> bool:
    """Say whether an arrow's end is at the rim of an area, within a few pixels."""
    outer, inner = area.shrunk(-5), area.shrunk(5)
    return _holds(outer, end) and not _holds(inner, end)


def _holds(area: Rect, point: Point) -> bool:
    return area.x <= point.x <= area.x + area.w and area.y <= point.y <= area.y + area.h


def _crosses(line: Rect, area: Rect) -> bool:
    """Say whether a segment, which is an area without width or height, goes through another area."""
    return (
        line.x < area.x + area.w
        and area.x < line.x + max(line.w, 0.01)
        and line.y < area.y + area.h
        and area.y < line.y + max(line.h, 0.01)
    )
