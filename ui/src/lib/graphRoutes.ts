/** Lines between nodes in rows: right-angled, with round corners, on tracks of their own where they would cover each other. */
import type { Line } from "./graphLayout";

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
  lines: Line[];
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
  const tracks = tracksOf(ways);
  const h = stacked(rows, spots, ways, tracks);
  const found: Routed = { lines: [], h, left: 0, right: 0 };
  for (const wire of wires) if (wire.source === wire.target) found.lines.push(ownLoop(wire, spots.get(wire.source) as Spot));
  for (const way of ways) found.lines.push(drawn(way, rows, spots, tracks, ins, outs, fit, width));
  for (const line of found.lines) {
    for (const match of line.path.matchAll(/(-?[\d.]+) (-?[\d.]+)/g)) {
      found.left = Math.min(found.left, Number(match[1]) - 4);
      found.right = Math.max(found.right, Number(match[1]) + 4);
    }
    if (line.label) {
      found.left = Math.min(found.left, line.label.x - line.label.w / 2 - 4);
      found.right = Math.max(found.right, line.label.x + line.label.w / 2 + 4);
    }
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
  // A bend beside the port that it leads to would be a jog that says nothing.
  for (let each = 1; each < xs.length - 1; each++) if (Math.abs((xs[each] as number) - (xs[each - 1] as number)) < STRAIGHT) xs[each] = xs[each - 1] as number;
  const crossings: Crossing[] = [];
  for (let each = 0; each + 1 < xs.length; each++) {
    const isFirst = each === 0;
    const isLast = each + 2 === xs.length;
    let key = `w${index}`;
    if (!isBack && isFirst && (outs.get(wire.source) ?? 0) > 1) key = `s${wire.source}`;
    else if (!isBack && isLast && (ins.get(wire.target) ?? 0) > 1) key = `t${wire.target}`;
    crossings.push({ gap: top.row + each, from: xs[each] as number, to: xs[each + 1] as number, key });
  }
  return [{ wire, id: `${index} ${wire.source} ${wire.target}`, isBack, crossings }];
}

/** Choose tracks in each gap, so that no two lines lie on each other and few cross: the number of each key, and how many there are. */
function tracksOf(ways: Way[]): Map<number, { of: Map<string, number>; count: number }> {
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
  const found = new Map<number, { of: Map<string, number>; count: number }>();
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
    found.set(gap, { of, count: ends.length });
  }
  return found;
}

/** Set the rows under each other, with space for the lines and labels between them. */
function stacked(rows: Row[], spots: Map<string, Spot>, ways: Way[], tracks: ReadonlyMap<number, { count: number }>): number {
  const labelled = new Set<number>();
  for (const way of ways) if (way.wire.label) for (const each of way.crossings) labelled.add(each.gap);
  let y = 0;
  rows.forEach((row, index) => {
    const count = tracks.get(index - 1)?.count ?? 0;
    if (index) y += SPACE + Math.max(0, count - 1) * TRACK + (labelled.has(index - 1) ? LABEL : 0);
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
function ownLoop(wire: Wire, spot: Spot): Line {
  const x = spot.x + spot.w / 2;
  const [low, high] = [spot.y + spot.h * 0.72, spot.y + spot.h * 0.3];
  const path = rounded([
    [x, low],
    [x + SIDE + 6, low],
    [x + SIDE + 6, high],
    [x + TIP, high],
  ]);
  return { id: `own ${wire.source}`, source: wire.source, target: wire.target, path, tip: { x, y: high, side: "left" }, kind: "back", label: null };
}

function drawn(way: Way, rows: Row[], spots: ReadonlyMap<string, Spot>, tracks: ReadonlyMap<number, { of: Map<string, number>; count: number }>, ins: ReadonlyMap<string, number>, outs: ReadonlyMap<string, number>, fit: (label: string) => string, width: (label: string) => number): Line {
  const { wire, isBack, crossings } = way;
  const source = spots.get(wire.source) as Spot;
  const target = spots.get(wire.target) as Spot;
  const [top, bottom] = isBack ? [target, source] : [source, target];
  const points: [number, number][] = [];
  if (isBack) points.push([top.x + top.w / 2 + TIP, top.y + top.h / 2], [top.x + top.w / 2 + SIDE, top.y + top.h / 2]);
  else points.push([top.x, top.y + top.h]);
  for (const each of crossings) {
    if (Math.abs(each.from - each.to) < 0.5) continue;
    const above = rows[each.gap] as Row;
    const lines = tracks.get(each.gap);
    const y = above.y + above.h + SPACE / 2 - 3 + (lines?.of.get(each.key) ?? 0) * TRACK;
    points.push([each.from, y], [each.to, y]);
  }
  const label = labelOf(way, rows, tracks, ins, outs, bottom, fit, width);
  if (isBack) {
    points.push([bottom.x + bottom.w / 2 + SIDE, bottom.y + bottom.h / 2], [bottom.x + bottom.w / 2, bottom.y + bottom.h / 2]);
    return { id: way.id, source: wire.source, target: wire.target, path: rounded(points.reverse()), tip: { x: top.x + top.w / 2, y: top.y + top.h / 2, side: "left" }, kind: "back", label };
  }
  points.push([bottom.x, bottom.y - TIP]);
  return { id: way.id, source: wire.source, target: wire.target, path: rounded(points), tip: { x: bottom.x, y: bottom.y, side: "down" }, kind: "flow", label };
}

/** Where a label stands: at the end that belongs to this line alone. */
function labelOf(way: Way, rows: Row[], tracks: ReadonlyMap<number, { count: number }>, ins: ReadonlyMap<string, number>, outs: ReadonlyMap<string, number>, bottom: Spot, fit: (label: string) => string, width: (label: string) => number): Line["label"] {
  const { wire, crossings } = way;
  if (!wire.label) return null;
  const text = fit(wire.label);
  const first = crossings[0] as Crossing;
  const last = crossings.at(-1) as Crossing;
  const count = tracks.get(last.gap)?.count ?? 0;
  const row = rows[last.gap] as Row;
  const low = row.y + row.h + SPACE / 2 + Math.max(0, count - 1) * TRACK + LABEL / 2 + 1;
  const atEnd = way.isBack || (ins.get(wire.target) ?? 0) === 1 || (outs.get(wire.source) ?? 0) > 1;
  if (atEnd || crossings.length > 1) {
    const x = (ins.get(wire.target) ?? 0) > 1 && crossings.length > 1 ? last.from : last.to;
    return { text, full: wire.label, x: way.isBack ? last.to : x, y: Math.min(low, bottom.y - TIP - 8), w: width(text) + 10 };
  }
  const above = rows[first.gap] as Row;
  return { text, full: wire.label, x: first.from, y: above.y + above.h + 11, w: width(text) + 10 };
}

/** Write a path through points, with round corners. */
export function rounded(points: [number, number][], radius = RADIUS): string {
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
      const corner = (other: [number, number], distance: number): string => `${number(x + ((other[0] - x) * cut) / distance)} ${number(y + ((other[1] - y) * cut) / distance)}`;
      path += `L${corner(before, near)}Q${number(x)} ${number(y)} ${corner(after, far)}`;
    }
  });
  return path;
}
