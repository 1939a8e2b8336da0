/** Where the nodes of a graph lie: rows by dagre, containers from the inside out, then the lines between them. Pure. */
import { Graph as Dagre, layout as dagreLayout } from "@dagrejs/dagre";
import type { GraphEdge } from "../api/types";
import { rounded, routed, type Row, type Wire } from "./graphRoutes";
import { around, insideOf, type Block, type Item } from "./graph";

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Placed extends Box {
  item: Item;
  /** The label in the width there is, with an ellipsis if it was cut. */
  label: string;
  /** The second line of a card: its type or what it does. */
  detail: string;
  /** A container whose actions are drawn in it. */
  open: boolean;
  inside: number;
}

export interface Branch extends Box {
  label: string;
  depth: number;
}

export type Point = [x: number, y: number];

export interface Line {
  id: string;
  /** More than one where several nodes share a line. */
  sources: string[];
  targets: string[];
  /** Its corners, and the path through them with the corners round. */
  points: Point[];
  path: string;
  /** The tip: where the arrow is drawn, and to which side it points. */
  tip: { x: number; y: number; side: "down" | "left" };
  kind: "flow" | "back" | "soft" | "round";
  label: { text: string; full: string; x: number; y: number; w: number } | null;
}

/** A line whose place is not final yet. */
export type Loose = Omit<Line, "path">;

export interface Layout {
  width: number;
  height: number;
  /** Containers before what they hold, then from top to bottom. */
  nodes: Placed[];
  branches: Branch[];
  lines: Line[];
}

export const NOTHING: Layout = { width: 0, height: 0, nodes: [], branches: [], lines: [] };

/** Width of a text in pixels. */
export type Measure = (text: string, size: number, weight: number) => number;

const CARD = 46;
const PILL = 28;
const HEAD = 38;
const PAD = 14;
const BRANCH_HEAD = 24;
const ROUND = 20;
const BADGE = 160;
const GAP_X = 30;
const GAP = 12;
/** Above this many nodes side by side in one piece dagre is too slow, and rows are made by rank alone. */
const DAGRE_MOST = 420;
const MARGIN = 16;

interface Sized {
  item: Item;
  w: number;
  h: number;
  body: Body | null;
  label: string;
  detail: string;
  /** Nodes that are drawn in a grid, because they all come after and before the same. */
  bundle?: Sized[];
}

interface Body {
  w: number;
  h: number;
  parts: { x: number; y: number; sheet: Sheet; frame: { label: string; w: number; h: number } | null }[];
}

/** One block, laid out from its own corner. */
interface Sheet {
  w: number;
  h: number;
  items: { sized: Sized; x: number; y: number }[];
  lines: Loose[];
  frames: { label: string; x: number; y: number; w: number; h: number }[];
}

interface Edge {
  source: string;
  target: string;
  label: string;
}

/** Lay out a graph. `closed` are containers of which only the head is drawn; branches stand side by side up to the width `most`. */
export function layoutGraph(roots: Block, items: ReadonlyMap<string, Item>, edges: readonly GraphEdge[], closed: ReadonlySet<string>, measure: Measure = estimate, most = 960): Layout {
  const sheet = new Sheets(items, edges, closed, measure, most).of(roots);
  const found: Layout = { width: sheet.w + 2 * MARGIN, height: sheet.h + 2 * MARGIN, nodes: [], branches: [], lines: [] };
  place(sheet, MARGIN, MARGIN, found);
  return found;
}

/** Give everything on a sheet its place in the whole. */
function place(sheet: Sheet, left: number, top: number, found: Layout): void {
  for (const line of sheet.lines) found.lines.push(finished(moved(line, left, top)));
  for (const frame of sheet.frames) found.branches.push({ ...frame, x: left + frame.x, y: top + frame.y, depth: 0 });
  const ordered = sheet.items.toSorted((a, b) => a.y - b.y || a.x - b.x);
  for (const { sized, x, y } of ordered) {
    const { item, w, h, body, label, detail } = sized;
    found.nodes.push({ item, x: left + x, y: top + y, w, h, label, detail, open: body !== null, inside: insideOf(item) });
    for (const part of body?.parts ?? []) {
      const frame = part.frame;
      if (frame) found.branches.push({ x: left + x + part.x, y: top + y + part.y, w: frame.w, h: frame.h, label: frame.label, depth: item.depth });
      place(part.sheet, left + x + part.x + (frame ? PAD : 0), top + y + part.y + (frame ? BRANCH_HEAD : 0), found);
    }
    if (body && item.kind === "loop") found.lines.push(finished(roundLine(item, { x: left + x, y: top + y, w, h }, body.parts[0]?.sheet, left + x + (body.parts[0]?.x ?? 0))));
  }
}

function moved(line: Loose, x: number, y: number): Loose {
  return {
    ...line,
    points: line.points.map((point) => [point[0] + x, point[1] + y]),
    tip: { ...line.tip, x: line.tip.x + x, y: line.tip.y + y },
    label: line.label && { ...line.label, x: line.label.x + x, y: line.label.y + y },
  };
}

function finished(line: Loose): Line {
  return { ...line, path: rounded(line.points) };
}

/** The line that leads from the end of a loop's body back to its beginning, along the right side. */
function roundLine(item: Item, box: Box, sheet: Sheet | undefined, left: number): Loose {
  const first = sheet?.items.toSorted((a, b) => a.y - b.y)[0];
  const last = sheet?.items.toSorted((a, b) => b.y + b.sized.h - (a.y + a.sized.h))[0];
  const begin = left + (last ? last.x + last.sized.w / 2 : 0);
  const end = left + (first ? first.x + first.sized.w / 2 : 0);
  const right = box.x + box.w - ROUND / 2 - 4;
  const bottom = box.y + box.h - PAD;
  const top = box.y + HEAD + 4;
  const points: Point[] = [
    [begin, bottom - ROUND / 2 - 4],
    [begin, bottom],
    [right, bottom],
    [right, top],
    [end, top],
    [end, top + ROUND - 8],
  ];
  return { id: `round ${item.id}`, sources: [item.id], targets: [item.id], points, tip: { x: end, y: top + ROUND - 2, side: "down" }, kind: "round", label: null };
}

class Sheets {
  /** Edges by the block that both of their ends lie in. */
  readonly #edges = new Map<Block, Edge[]>();

  constructor(
    items: ReadonlyMap<string, Item>,
    edges: readonly GraphEdge[],
    readonly closed: ReadonlySet<string>,
    readonly measure: Measure,
    readonly most: number,
  ) {
    const blockOf = new Map<Item, Block>();
    for (const item of items.values()) for (const block of item.blocks) for (const each of block.items) blockOf.set(each, block);
    const roots: Block = { label: null, items: [] };
    this.#roots = roots;
    const seen = new Set<string>();
    for (const edge of edges) {
      const source = items.get(edge.source);
      const target = items.get(edge.target);
      if (!source || !target) continue;
      const ends = meeting(source, target, blockOf);
      if (!ends) continue;
      const key = JSON.stringify([ends[0].id, ends[1].id, edge.label ?? ""]);
      if (seen.has(key)) continue;
      seen.add(key);
      const block = blockOf.get(ends[0]) ?? roots;
      const known = this.#edges.get(block) ?? [];
      known.push({ source: ends[0].id, target: ends[1].id, label: statusWords(edge.label ?? "") });
      this.#edges.set(block, known);
    }
  }
  readonly #roots: Block;

  of(block: Block, isRoot = true): Sheet {
    const sized = block.items.map((item) => this.#sized(item));
    const edges = this.#edges.get(isRoot ? this.#roots : block) ?? [];
    const pieces = piecesOf(sized, edges).map(([nodes, lines]) => this.#piece(nodes, lines));
    return packed(pieces, this.most);
  }

  #sized(item: Item): Sized {
    const isCard = item.kind === "step" || item.kind === "action" || item.kind === "container" || item.kind === "loop";
    if (!isCard) return this.#pill(item);
    const open = item.blocks.length > 0 && !this.closed.has(item.id);
    const body = open ? this.#body(item) : null;
    const extra = item.kind === "loop" ? BADGE : 0;
    const name = this.measure(item.label, 13, 600);
    if (body) {
      const type = this.measure(item.type, 11, 400) + 84 + extra;
      const w = Math.max(body.w + 2 * PAD, Math.min(name, 220) + type);
      for (const part of body.parts) part.x += (w - body.w) / 2 - PAD;
      return { item, w: Math.ceil(w), h: HEAD + body.h + PAD, body, label: fitted(item.label, w - type, 13, 600, this.measure), detail: item.type };
    }
    const detail = item.blocks.length ? `${item.type} · ${insideOf(item)} inside` : item.type || firstSentence(item.about) || "step";
    const room = item.blocks.length ? 26 : 0;
    const w = clamp(Math.max(name + 72, Math.min(150, this.measure(detail, 11, 400)) + 52) + room, 164, 236) + (extra && room ? 40 : 0);
    return { item, w: Math.ceil(w), h: CARD, body: null, label: fitted(item.label, w - 68 - room, 13, 600, this.measure), detail: fitted(detail, w - 48 - room, 11, 400, this.measure) };
  }

  #pill(item: Item): Sized {
    const marked = item.kind !== "event" ? 20 : 0;
    const w = clamp(this.measure(item.label, 12, 500) + 26 + marked, 56, 220);
    return { item, w: Math.ceil(w), h: PILL, body: null, label: fitted(item.label, w - 22 - marked, 12, 500, this.measure), detail: "" };
  }

  #body(item: Item): Body {
    const isLoop = item.kind === "loop";
    const framed = item.blocks.length > 1 || item.blocks[0]?.label != null;
    const parts = item.blocks.map((block) => {
      const sheet = this.of(block, false);
      const label = block.label ?? "";
      const w = Math.max(sheet.w + (framed ? 2 * PAD : 0), framed ? this.measure(label, 11, 500) + 2 * PAD : 0);
      return { sheet, frame: framed ? { label, w, h: sheet.h + BRANCH_HEAD + PAD } : null, w, h: framed ? sheet.h + BRANCH_HEAD + PAD : sheet.h };
    });
    const rows = shelves(parts, Math.max(this.most, ...parts.map((part) => part.w)));
    const found: Body = { w: rows.w, h: rows.h, parts: parts.map((part, index) => ({ x: PAD + (rows.at[index]?.x ?? 0), y: HEAD + (rows.at[index]?.y ?? 0), sheet: part.sheet, frame: part.frame })) };
    for (const part of found.parts) {
      if (part.frame && rows.rows === 1) part.frame.h = rows.h;
      if (isLoop) part.y += ROUND;
    }
    if (isLoop) {
      found.w += 2 * ROUND;
      found.h += 2 * ROUND;
      for (const part of found.parts) part.x += ROUND;
    }
    return found;
  }

  /** Lay out nodes that edges hold together. */
  #piece(all: Sized[], given: Edge[]): Sheet {
    const only = all[0];
    if (only && all.length === 1 && given.length === 0) return { w: only.w, h: only.h, items: [{ sized: only, x: 0, y: 0 }], lines: [], frames: [] };
    const { nodes, edges } = bundled(all, given, this.most);
    const { rows, wires } = nodes.length > DAGRE_MOST ? ranked(nodes, edges) : arranged(nodes, edges);
    const drawn = routed(
      rows,
      wires,
      (label) => fitted(label, 140, 11, 500, this.measure),
      (label) => this.measure(label, 11, 500),
    );
    const byId = new Map(nodes.map((each) => [each.item.id, each]));
    const placed = rows.flatMap((row) => row.nodes.map((cell) => ({ sized: byId.get(cell.id) as Sized, x: cell.x - cell.w / 2, y: cell.y })));
    const left = Math.min(drawn.left, ...placed.map((each) => each.x));
    const right = Math.max(drawn.right, ...placed.map((each) => each.x + each.sized.w));
    const found: Sheet = { w: Math.ceil(right - left), h: Math.ceil(drawn.h), items: [], lines: [], frames: [] };
    for (const { sized, x, y } of placed) {
      if (!sized.bundle) {
        found.items.push({ sized, x: x - left, y });
        continue;
      }
      found.frames.push({ label: sized.label, x: x - left, y, w: sized.w, h: sized.h });
      gridOf(sized.bundle, this.most).at.forEach((spot, index) => found.items.push({ sized: (sized.bundle as Sized[])[index] as Sized, x: x - left + spot.x, y: y + spot.y }));
    }
    for (const line of drawn.lines) {
      const ends = [byId.get(line.sources[0] ?? ""), byId.get(line.targets[0] ?? "")] as [Sized, Sized];
      const [sources, targets] = ends.map((end) => (end.bundle ?? [end]).map((each) => each.item.id)) as [string[], string[]];
      // Lines to and from resources are quiet: they carry no flow.
      found.lines.push(moved({ ...line, sources, targets, kind: line.kind === "flow" && ends.some(isResource) ? "soft" : line.kind }, -left, 0));
    }
    return found;
  }
}

function isResource(each: Sized): boolean {
  return each.item.kind === "resource";
}

const BUNDLE = 7;

/** Put many nodes that come after and before the same nodes into one, which is drawn as a grid with one line in and one out. */
function bundled(nodes: Sized[], edges: Edge[], most: number): { nodes: Sized[]; edges: Edge[] } {
  if (nodes.length < BUNDLE + 1) return { nodes, edges };
  const ways = new Map<string, string[]>(nodes.map((each) => [each.item.id, []]));
  for (const edge of edges) {
    ways.get(edge.source)?.push(`> ${edge.target} ${edge.label}`);
    ways.get(edge.target)?.push(`< ${edge.source} ${edge.label}`);
  }
  const alike = new Map<string, Sized[]>();
  for (const each of nodes) {
    const key = ways.get(each.item.id)?.toSorted().join("\n") ?? "";
    alike.set(key, [...(alike.get(key) ?? []), each]);
  }
  const groups = [...alike.values()].filter((group) => group.length >= BUNDLE);
  if (!groups.length) return { nodes, edges };
  const into = new Map<string, Sized>();
  for (const group of groups) {
    const { w, h } = gridOf(group, most);
    const first = (group[0] as Sized).item;
    const bundle: Sized = { item: { ...first, id: `\u0000 ${first.id}` }, w, h, body: null, label: first.kind === "action" ? `${group.length} in parallel` : "", detail: "", bundle: group };
    for (const each of group) into.set(each.item.id, bundle);
  }
  const end = (id: string): string => into.get(id)?.item.id ?? id;
  const kept = new Map(edges.map((edge) => ({ source: end(edge.source), target: end(edge.target), label: edge.label })).map((edge) => [JSON.stringify(edge), edge]));
  return { nodes: [...new Set(nodes.map((each) => into.get(each.item.id) ?? each))], edges: [...kept.values()] };
}

/** A grid that is a bit wider than high. */
function gridOf(group: readonly Sized[], most: number): { at: { x: number; y: number }[]; w: number; h: number } {
  const w = Math.max(...group.map((each) => each.w));
  const h = Math.max(...group.map((each) => each.h));
  const columns = Math.max(1, Math.min(Math.floor(most / (w + GAP)), Math.ceil(Math.sqrt((group.length * (h + GAP)) / (w + GAP)) * 1.6)));
  const rows = Math.ceil(group.length / columns);
  const head = (group[0] as Sized).item.kind === "action" ? BRANCH_HEAD : PAD;
  const at = group.map((each, index) => ({ x: PAD + (index % columns) * (w + GAP) + (w - each.w) / 2, y: head + Math.floor(index / columns) * (h + GAP) }));
  return { at, w: columns * (w + GAP) - GAP + 2 * PAD, h: head + rows * (h + GAP) - GAP + PAD };
}

/** Lift the ends of an edge to where they stand side by side; null if both lie in one node. */
function meeting(source: Item, target: Item, blockOf: ReadonlyMap<Item, Block>): [Item, Item] | null {
  if (source === target) return [source, target];
  if (blockOf.get(source) === blockOf.get(target)) return [source, target];
  const up = [...around(source), source];
  const down = [...around(target), target];
  let level = 0;
  while (level < up.length - 1 && level < down.length - 1 && up[level] === down[level]) level += 1;
  const [a, b] = [up[level] as Item, down[level] as Item];
  return a === b || blockOf.get(a) !== blockOf.get(b) ? null : [a, b];
}

const ALL_STATUSES = 4;

function statusWords(label: string): string {
  const parts = label.split(", ");
  if (!parts.every((part) => /^(Succeeded|Failed|Skipped|TimedOut)$/.test(part))) return label;
  return parts.length === ALL_STATUSES ? "always" : parts.map((part) => (part === "TimedOut" ? "timed out" : part.toLowerCase())).join(", ");
}

/** The pieces that no edge joins, in the order of their first nodes. */
function piecesOf(nodes: Sized[], edges: Edge[]): [Sized[], Edge[]][] {
  const leader = new Map(nodes.map((each) => [each.item.id, each.item.id]));
  const find = (id: string): string => {
    let top = id;
    while (leader.get(top) !== top) top = leader.get(top) as string;
    for (let each = id; each !== top; ) {
      const next = leader.get(each) as string;
      leader.set(each, top);
      each = next;
    }
    return top;
  };
  for (const edge of edges) leader.set(find(edge.source), find(edge.target));
  const found = new Map<string, [Sized[], Edge[]]>();
  for (const each of nodes) {
    const top = find(each.item.id);
    const piece = found.get(top) ?? [[], []];
    piece[0].push(each);
    found.set(top, piece);
  }
  for (const edge of edges) found.get(find(edge.source))?.[1].push(edge);
  return [...found.values()];
}

/** Put pieces side by side, in as many rows as keep the whole about as wide as high. */
function packed(pieces: Sheet[], most: number): Sheet {
  if (pieces.length === 1) return pieces[0] as Sheet;
  const area = pieces.reduce((sum, piece) => sum + (piece.w + GAP_X) * (piece.h + GAP_X), 0);
  const few = pieces.length <= 3 ? most : 0;
  const { at, w, h } = shelves(pieces, Math.max(few, Math.min(2 * most, Math.sqrt(area * 1.6)), ...pieces.map((piece) => piece.w)), 22);
  const found: Sheet = { w, h, items: [], lines: [], frames: [] };
  pieces.forEach((piece, index) => {
    const { x, y } = at[index] as { x: number; y: number };
    for (const each of piece.items) found.items.push({ ...each, x: each.x + x, y: each.y + y });
    for (const line of piece.lines) found.lines.push(moved(line, x, y));
    for (const frame of piece.frames) found.frames.push({ ...frame, x: frame.x + x, y: frame.y + y });
  });
  return found;
}

/** Fill rows from left to right; a row ends where `most` would be passed. */
function shelves(boxes: readonly { w: number; h: number }[], most: number, gap = PAD): { at: { x: number; y: number }[]; w: number; h: number; rows: number } {
  const at: { x: number; y: number }[] = [];
  let [x, y, high, wide, rows] = [0, 0, 0, 0, 1];
  for (const box of boxes) {
    if (x > 0 && x + box.w > most) {
      y += high + gap;
      rows += 1;
      x = high = 0;
    }
    at.push({ x, y });
    x += box.w + gap;
    wide = Math.max(wide, x - gap);
    high = Math.max(high, box.h);
  }
  return { at, w: wide, h: y + high, rows };
}

/** Let dagre choose the row of each node, its place in it, and where long lines pass. */
function arranged(nodes: Sized[], edges: Edge[]): { rows: Row[]; wires: Wire[] } {
  const straight = edges.filter((edge) => edge.source !== edge.target);
  const chain = chained(nodes, straight);
  if (chain) return { rows: chain.map((each) => ({ y: 0, h: each.h, nodes: [cell(each, 0)] })), wires: wiresOf(edges, new Map()) };
  const graph = new Dagre({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: GAP_X, edgesep: 18, ranksep: 40, ranker: nodes.length + edges.length > 200 ? "tight-tree" : "network-simplex" });
  for (const each of nodes) graph.setNode(each.item.id, { width: each.w, height: each.h });
  const quiet = new Set(nodes.filter(isResource).map((each) => each.item.id));
  straight.forEach((edge, index) => graph.setEdge(edge.source, edge.target, { weight: quiet.has(edge.target) ? 1 : 6 }, String(index)));
  dagreLayout(graph);
  const at = nodes.map((each) => ({ each, spot: { ...(graph.node(each.item.id) as { x: number; rank: number }) } }));
  const side = isMirrored(at.map(({ spot }) => spot)) ? -1 : 1;
  for (const { spot } of at) spot.x *= side;
  const ranks = [...new Set(at.map(({ spot }) => spot.rank))].sort((a, b) => a - b);
  const rows: Row[] = ranks.map(() => ({ y: 0, h: 0, nodes: [] }));
  const rowOf = new Map<string, number>();
  for (const { each, spot } of at) {
    const index = ranks.indexOf(spot.rank);
    const row = rows[index] as Row;
    row.nodes.push(cell(each, spot.x));
    row.h = Math.max(row.h, each.h);
    rowOf.set(each.item.id, index);
  }
  const bends = new Map<Edge, number[]>();
  straight.forEach((edge, index) => {
    // The first and the last point lie on the nodes; between them is one point for each rank, also for those of rows.
    const points = (graph.edge(edge.source, edge.target, String(index)) as { points: { x: number }[] }).points.slice(1, -1);
    const from = ranks[rowOf.get(edge.source) as number] as number;
    const step = (ranks[rowOf.get(edge.target) as number] as number) > from ? 1 : -1;
    bends.set(edge, points.filter((_, number) => ranks.includes(from + step * (number + 1))).map((point) => point.x * side));
  });
  return { rows, wires: wiresOf(edges, bends) };
}

/** Whether a layout runs against the order of the document: of two nodes in a row the first should stand left. */
function isMirrored(spots: readonly { x: number; rank: number }[]): boolean {
  const last = new Map<number, number>();
  let against = 0;
  for (const { x, rank } of spots) {
    const before = last.get(rank);
    if (before !== undefined) against += before > x ? 1 : -1;
    last.set(rank, x);
  }
  return against > 0;
}

function cell(each: Sized, x: number): Row["nodes"][number] {
  return { id: each.item.id, x, y: 0, w: each.w, h: each.h };
}

function wiresOf(edges: Edge[], bends: ReadonlyMap<Edge, number[]>): Wire[] {
  return edges.map((edge) => ({ source: edge.source, target: edge.target, label: edge.label, bends: bends.get(edge) ?? [] }));
}

/** The nodes in order if they are one simple chain, which needs no search. */
function chained(nodes: Sized[], edges: Edge[]): Sized[] | null {
  if (edges.length !== nodes.length - 1) return null;
  const next = new Map(edges.map((edge) => [edge.source, edge.target]));
  const targets = new Set(edges.map((edge) => edge.target));
  if (next.size !== edges.length || targets.size !== edges.length) return null;
  const byId = new Map(nodes.map((each) => [each.item.id, each]));
  const order: Sized[] = [];
  for (let each = nodes.find((one) => !targets.has(one.item.id)); each; each = byId.get(next.get(each.item.id) ?? "")) order.push(each);
  return order.length === nodes.length ? order : null;
}

/** Rows by the longest way from a beginning, for pieces that are too large to be searched for a better order. */
function ranked(nodes: Sized[], edges: Edge[]): { rows: Row[]; wires: Wire[] } {
  const rank = longestWays(nodes, edges);
  const cells: { id: string; w: number; h: number; x: number; sized: Sized | null; before: number[] }[][] = [];
  const indexIn = new Map<string, number>();
  const put = (row: number, entry: { id: string; w: number; h: number; x: number; sized: Sized | null; before: number[] }): void => {
    (cells[row] ??= []).push(entry);
    indexIn.set(entry.id, (cells[row] as unknown[]).length - 1);
  };
  const passing = new Map<Edge, string[]>();
  for (const each of nodes.toSorted((a, b) => (rank.get(a.item.id) ?? 0) - (rank.get(b.item.id) ?? 0))) put(rank.get(each.item.id) ?? 0, { id: each.item.id, w: each.w, h: each.h, x: 0, sized: each, before: [] });
  edges.forEach((edge, number) => {
    const [from, to] = [rank.get(edge.source) ?? 0, rank.get(edge.target) ?? 0];
    const ids: string[] = [];
    for (let row = Math.min(from, to) + 1; row < Math.max(from, to); row++) {
      const id = `\u0000${number} ${row}`;
      ids.push(id);
      put(row, { id, w: 8, h: 0, x: 0, sized: null, before: [] });
    }
    passing.set(edge, from < to ? ids : ids.reverse());
  });
  for (const row of cells) {
    let x = 0;
    for (const entry of row ?? []) {
      entry.x = x + entry.w / 2;
      x += entry.w + (entry.sized ? GAP_X : 10);
    }
    for (const entry of row ?? []) entry.x -= x / 2;
  }
  const xOf = new Map(cells.flat().map((entry) => [entry.id, entry.x]));
  const rows = cells.map((row) => ({ y: 0, h: Math.max(0, ...row.map((entry) => entry.h)), nodes: row.flatMap((entry) => (entry.sized ? [cell(entry.sized, entry.x)] : [])) }));
  const bends = new Map(edges.map((edge) => [edge, (passing.get(edge) ?? []).map((id) => xOf.get(id) ?? 0)]));
  return { rows, wires: wiresOf(edges, bends) };
}

/** The longest way to each node from a beginning. An edge that closes a circle counts for nothing. */
function longestWays(nodes: Sized[], edges: Edge[]): Map<string, number> {
  const after = new Map<string, string[]>();
  for (const edge of edges) {
    if (edge.source === edge.target) continue;
    const known = after.get(edge.source);
    if (known) known.push(edge.target);
    else after.set(edge.source, [edge.target]);
  }
  const state = new Map<string, "open" | "done">();
  const order: string[] = [];
  const forward: Edge[] = [];
  for (const { item } of nodes) {
    const path: { id: string; left: string[] }[] = state.has(item.id) ? [] : [{ id: item.id, left: [...(after.get(item.id) ?? [])] }];
    if (path.length) state.set(item.id, "open");
    for (let top = path.at(-1); top; top = path.at(-1)) {
      const next = top.left.pop();
      if (next === undefined) {
        state.set(top.id, "done");
        order.push(top.id);
        path.pop();
      } else if (state.get(next) !== "open") {
        forward.push({ source: top.id, target: next, label: "" });
        if (!state.has(next)) {
          state.set(next, "open");
          path.push({ id: next, left: [...(after.get(next) ?? [])] });
        }
      }
    }
  }
  const rank = new Map(nodes.map((each) => [each.item.id, 0]));
  const ways = new Map<string, Edge[]>();
  for (const edge of forward) {
    const known = ways.get(edge.source);
    if (known) known.push(edge);
    else ways.set(edge.source, [edge]);
  }
  for (const id of order.reverse()) for (const edge of ways.get(id) ?? []) rank.set(edge.target, Math.max(rank.get(edge.target) ?? 0, (rank.get(id) ?? 0) + 1));
  return rank;
}

function firstSentence(about: string): string {
  return (/^[^\n]*?[.!?](?=\s|$)/.exec(about)?.[0] ?? about.split("\n")[0] ?? "").replace(/\.$/, "");
}

// -- Texts -------------------------------------------------------------------------------------------------------------

const NARROW = /[iljtfr.,:;'|!()[\] ]/;
const WIDE = /[mwMWQ@%]/;

/** The width of a text where there is no browser to ask. */
export function estimate(text: string, size: number): number {
  let ems = 0;
  for (const char of text) ems += NARROW.test(char) ? 0.32 : WIDE.test(char) ? 0.86 : /[A-Z\u2e80-\uffff]/.test(char) ? 0.72 : 0.56;
  return ems * size;
}

/** Cut a text to a width, with an ellipsis. */
export function fitted(text: string, width: number, size: number, weight: number, measure: Measure): string {
  if (measure(text, size, weight) <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measure(`${text.slice(0, middle)}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low).trimEnd()}…`;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
