/** Lines between nodes in rows: right-angled, with round corners, on tracks of their own where they would cover each other. */
import type { Loose, Point } from "./graphLayout";

/** A row of nodes. `y` is computed here, since the space between two rows depends on the lines in it. */
export interface Row {
  y: number;
  h: number;
  nodes: { id: string; /** The middle. */ x: number; y: number; w: number; h: number }[];
}

/** A line to draw. `bends` is where it passes the rows between its ends. */
export interface Wire {
  source: string;
  target: string;
  label: string;
  bends: number[];
}

interface Spot {
  row: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

/** The way of a wire through the space between two rows, from `from` above to `to` below. */
interface Crossing {
  gap: number;
  from: number;
  to: number;
  /** Crossings with one key share a track: those that leave one node, or come to one. */
  key: string;
}

interface Way {
  wire: Wire;
  id: string;
  isBack: boolean;
  /** From the upper row to the lower one, whatever the direction. */
  crossings: Crossing[];
  /** Where its label stands: above or below the tracks of a gap, at the part of the line that is its own. */
  spot: { gap: number; zone: "high" | "low"; x: number } | null;
}

/** The spaces between rows: how many tracks each has, which track a key has, and whether labels stand above or below them. */
interface Gap {
  of: Map<string, number>;
  count: number;
  high: boolean;
  low: boolean;
}

const SPACE = 34;
const TRACK = 9;
const LABEL = 20;
const RADIUS = 8;
const TIP = 7;
const SIDE = 13;
/** A jog that is smaller than this is drawn straight. */
const STRAIGHT = 10;

export interface Routed {
  lines: Loose[];
  h: number;
  left: number;
  right: number;
}

/** Draw the wires, and give every row and node its height. */
export function routed(rows: Row[], wires: Wire[], fit: (label: string) => string, width: (label: string) => number): Routed {
  const spots = new Map<string, Spot>();
  rows.forEach((row, index) => {
    for (const node of row.nodes) spots.set(node.id, { row: index, x: node.x, y: 0, w: node.w, h: node.h });
  });
  const outs = tally(wires.map((wire) => wire.source));
  const ins = tally(wires.map((wire) => wire.target));
  const ways = wires.flatMap((wire, index) => wayOf(wire, index, spots, outs, ins));
  const gaps = gapsOf(rows, ways);
  const h = stacked(rows, spots, gaps);
  const found: Routed = { lines: [], h, left: 0, right: 0 };
  for (const wire of wires) if (wire.source === wire.target) found.lines.push(ownLoop(wire, spots.get(wire.source) as Spot));
  const taken: Label[] = [];
  for (const way of ways) {
    const line = drawn(way, rows, spots, gaps);
    line.label = labelOf(way, rows, gaps, taken, fit, width);
    if (line.label) taken.push(line.label);
    found.lines.push(line);
  }
  for (const line of found.lines) {
    for (const [x] of line.points) [found.left, found.right] = [Math.min(found.left, x - 4), Math.max(found.right, x + 4)];
    if (!line.label) continue;
    found.left = Math.min(found.left, line.label.x - line.label.w / 2 - 4);
    found.right = Math.max(found.right, line.label.x + line.label.w / 2 + 4);
  }
  const least = Math.min(...[...spots.values()].map((spot) => spot.x - spot.w / 2));
  found.left = Math.min(found.left, least);
  if (least > 0 && !found.lines.length) found.left = least;
  return found;
}

function tally(ids: string[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const id of ids) found.set(id, (found.get(id) ?? 0) + 1);
  return found;
}

function wayOf(wire: Wire, index: number, spots: ReadonlyMap<string, Spot>, outs: ReadonlyMap<string, number>, ins: ReadonlyMap<string, number>): Way[] {
  const source = spots.get(wire.source);
  const target = spots.get(wire.target);
  if (!source || !target || source === target) return [];
  const isBack = target.row <= source.row;
  const [top, bottom] = isBack ? [target, source] : [source, target];
  const bends = isBack ? [...wire.bends].reverse() : [...wire.bends];
  const side = (spot: Spot): number => spot.x + spot.w / 2 + SIDE;
  const xs = [isBack ? side(top) : top.x, ...bends, isBack ? side(bottom) : bottom.x];
  const [single, alone] = [(ins.get(wire.target) ?? 0) === 1, (outs.get(wire.source) ?? 0) === 1];
  straightened(xs, !isBack && alone, !isBack && single);
  const crossings: Crossing[] = [];
  for (let each = 0; each + 1 < xs.length; each++) {
    const isFirst = each === 0;
    const isLast = each + 2 === xs.length;
    let key = `w${index}`;
    if (!isBack && isFirst && (outs.get(wire.source) ?? 0) > 1) key = `s${wire.source}`;
    else if (!isBack && isLast && (ins.get(wire.target) ?? 0) > 1) key = `t${wire.target}`;
    crossings.push({ gap: top.row + each, from: xs[each] as number, to: xs[each + 1] as number, key });
  }
  return [{ wire, id: `${index} ${wire.source} ${wire.target}`, isBack, crossings, spot: wire.label ? spotOf(crossings, isBack || single, alone) : null }];
}

function spotOf(crossings: Crossing[], single: boolean, alone: boolean): Way["spot"] {
  const [first, last] = [crossings[0] as Crossing, crossings.at(-1) as Crossing];
  if (single) return { gap: last.gap, zone: "low", x: last.to };
  if (crossings.length > 1) return { gap: last.gap, zone: "high", x: last.from };
  return alone ? { gap: first.gap, zone: "high", x: first.from } : { gap: last.gap, zone: "low", x: last.to };
}

/** Take out jogs that say nothing: where two places are nearly under each other, the line goes straight down. An end that other lines share stays. */
function straightened(xs: number[], mayMoveFirst: boolean, mayMoveLast: boolean): void {
  const near = (a: number, b: number): boolean => Math.abs((xs[a] as number) - (xs[b] as number)) < STRAIGHT;
  const last = xs.length - 1;
  for (let each = last - 1; each > 0; each--) if (near(each, each + 1)) xs[each] = xs[each + 1] as number;
  for (let each = 1; each < last; each++) if (near(each, each - 1)) xs[each] = xs[each - 1] as number;
  if (mayMoveFirst && near(0, 1)) xs[0] = xs[1] as number;
  else if (mayMoveLast && near(last - 1, last)) xs[last] = xs[last - 1] as number;
}

/** Choose tracks in each gap, so that no two lines lie on each other and few cross. */
function gapsOf(rows: readonly Row[], ways: Way[]): Gap[] {
  const byGap = new Map<number, Map<string, { low: number; high: number; from: number; right: boolean }>>();
  for (const way of ways) {
    for (const each of way.crossings) {
      if (Math.abs(each.from - each.to) < 0.5) continue;
      const keys = byGap.get(each.gap) ?? new Map();
      byGap.set(each.gap, keys);
      const known = keys.get(each.key);
      const [low, high] = [Math.min(each.from, each.to), Math.max(each.from, each.to)];
      if (known) Object.assign(known, { low: Math.min(known.low, low), high: Math.max(known.high, high) });
      else keys.set(each.key, { low, high, from: each.from, right: each.to > each.from });
    }
  }
  const found: Gap[] = rows.map(() => ({ of: new Map(), count: 0, high: false, low: false }));
  for (const { spot } of ways) if (spot) (found[spot.gap] as Gap)[spot.zone] = true;
  for (const [gap, keys] of byGap) {
    // Of lines to the right the rightmost lies on top, of those to the left the leftmost: so they cross least.
    const ordered = [...keys].sort(([, a], [, b]) => Number(b.right) - Number(a.right) || (a.right ? b.from - a.from : a.from - b.from));
    const ends: { low: number; high: number }[][] = [];
    const of = new Map<string, number>();
    for (const [key, span] of ordered) {
      let track = ends.findIndex((taken) => taken.every((other) => other.high + 6 < span.low || other.low - 6 > span.high));
      if (track < 0) track = ends.push([]) - 1;
      ends[track]?.push(span);
      of.set(key, track);
    }
    Object.assign(found[gap] as Gap, { of, count: ends.length });
  }
  return found;
}

/** Where the first track of a gap lies below the row above it. */
function firstTrack(gap: Gap): number {
  return SPACE / 2 - 3 + (gap.high ? LABEL : 0);
}

function heightOf(gap: Gap): number {
  return SPACE + Math.max(0, gap.count - 1) * TRACK + (gap.high ? LABEL : 0) + (gap.low ? LABEL : 0);
}

/** Set the rows under each other, with space for the lines and labels between them. */
function stacked(rows: Row[], spots: Map<string, Spot>, gaps: readonly Gap[]): number {
  let y = 0;
  rows.forEach((row, index) => {
    if (index) y += heightOf(gaps[index - 1] as Gap);
    row.y = y;
    const isTall = row.h > 80;
    for (const node of row.nodes) {
      node.y = y + (isTall ? 0 : (row.h - node.h) / 2);
      (spots.get(node.id) as Spot).y = node.y;
    }
    y += row.h;
  });
  return y;
}

/** A line from a node to itself: a small bow at its right side. */
function ownLoop(wire: Wire, spot: Spot): Loose {
  const x = spot.x + spot.w / 2;
  const [low, high] = [spot.y + spot.h * 0.72, spot.y + spot.h * 0.3];
  const points: Point[] = [
    [x, low],
    [x + SIDE + 6, low],
    [x + SIDE + 6, high],
    [x + TIP, high],
  ];
  return { id: `own ${wire.source}`, sources: [wire.source], targets: [wire.target], points, tip: { x, y: high, side: "left" }, kind: "back", label: null };
}

function drawn(way: Way, rows: readonly Row[], spots: ReadonlyMap<string, Spot>, gaps: readonly Gap[]): Loose {
  const { wire, isBack, crossings } = way;
  const source = spots.get(wire.source) as Spot;
  const target = spots.get(wire.target) as Spot;
  const [top, bottom] = isBack ? [target, source] : [source, target];
  const points: Point[] = [];
  const [begin, end] = [(crossings[0] as Crossing).from, (crossings.at(-1) as Crossing).to];
  if (isBack) points.push([top.x + top.w / 2 + TIP, top.y + top.h / 2], [begin, top.y + top.h / 2]);
  else points.push([begin, top.y + top.h]);
  for (const each of crossings) {
    if (Math.abs(each.from - each.to) < 0.5) continue;
    const [above, gap] = [rows[each.gap] as Row, gaps[each.gap] as Gap];
    const y = above.y + above.h + firstTrack(gap) + (gap.of.get(each.key) ?? 0) * TRACK;
    points.push([each.from, y], [each.to, y]);
  }
  const line = { id: way.id, sources: [wire.source], targets: [wire.target], label: null };
  if (isBack) {
    points.push([end, bottom.y + bottom.h / 2], [bottom.x + bottom.w / 2, bottom.y + bottom.h / 2]);
    return { ...line, points: points.reverse(), tip: { x: top.x + top.w / 2, y: top.y + top.h / 2, side: "left" }, kind: "back" };
  }
  points.push([end, bottom.y - TIP]);
  return { ...line, points, tip: { x: end, y: bottom.y, side: "down" }, kind: "flow" };
}

type Label = NonNullable<Loose["label"]>;

/** Set the label of a line; beside its line if another one stands there. Equal words at one place are written once. */
function labelOf(way: Way, rows: readonly Row[], gaps: readonly Gap[], taken: readonly Label[], fit: (label: string) => string, width: (label: string) => number): Label | null {
  if (!way.spot) return null;
  const { gap, zone, x } = way.spot;
  const [above, space] = [rows[gap] as Row, gaps[gap] as Gap];
  const text = fit(way.wire.label);
  const w = width(text) + 12;
  const y = above.y + above.h + (zone === "high" ? LABEL / 2 + 4 : heightOf(space) - TIP - LABEL / 2 - 2);
  const covers = (at: number): Label | undefined => taken.find((other) => Math.abs(other.y - y) < 16 && Math.abs(other.x - at) < (other.w + w) / 2);
  const known = covers(x);
  if (known && known.full === way.wire.label && Math.abs(known.x - x) < 1) return null;
  const at = [x, x - w / 2 - 4, x + w / 2 + 4, x - w - 8, x + w + 8].find((each) => !covers(each)) ?? x;
  return { text, full: way.wire.label, x: at, y, w };
}

/** Write a path through points, with round corners. */
export function rounded(points: readonly Point[], radius = RADIUS): string {
  const way = points.filter((point, index) => index === 0 || Math.hypot(point[0] - (points[index - 1] as number[])[0]!, point[1] - (points[index - 1] as number[])[1]!) > 0.05);
  const number = (value: number): number => Math.round(value * 10) / 10;
  let path = "";
  way.forEach(([x, y], index) => {
    const before = way[index - 1];
    const after = way[index + 1];
    if (!before) path += `M${number(x)} ${number(y)}`;
    else if (!after) path += `L${number(x)} ${number(y)}`;
    else {
      const [near, far] = [Math.hypot(before[0] - x, before[1] - y), Math.hypot(after[0] - x, after[1] - y)];
      const cut = Math.min(radius, near / 2, far / 2);
      const corner = (other: Point, distance: number): string => `${number(x + ((other[0] - x) * cut) / distance)} ${number(y + ((other[1] - y) * cut) / distance)}`;
      path += `L${corner(before, near)}Q${number(x)} ${number(y)} ${corner(after, far)}`;
    }
  });
  return path;
}
