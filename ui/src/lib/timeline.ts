/** The timeline of a run as numbers: scales that can leave idle time out, ticks, and rows of bars. Pure; times are milliseconds. */
import type { Bar, Lane, Timeline } from "../api/types";
import { duration } from "./format";

export interface Span {
  begin: number;
  end: number;
}

/** A window of time: what one looks at. */
export type Window = Span;

/** From time to place, in parts of straight lines: a stretch of idle time may take a fixed width instead of its length. */
export interface Scale {
  window: Window;
  width: number;
  folds: Span[];
  x: (time: number) => number;
  time: (x: number) => number;
}

const FOLD = 34;

/** Make a scale over a window. `folds` are stretches that are drawn short; they lie apart and in order. */
export function scaleOf(window: Window, width: number, folds: readonly Span[] = []): Scale {
  const inside = folds.map((fold) => ({ begin: Math.max(fold.begin, window.begin), end: Math.min(fold.end, window.end) })).filter((fold) => fold.end > fold.begin);
  const fold = Math.min(FOLD, inside.length ? (width * 0.5) / inside.length : FOLD);
  const idle = inside.reduce((sum, each) => sum + each.end - each.begin, 0);
  const length = Math.max(1, window.end - window.begin - idle);
  const perMs = Math.max(0.001, width - inside.length * fold) / length;
  const knots: { time: number; x: number }[] = [{ time: window.begin, x: 0 }];
  let [at, x] = [window.begin, 0];
  for (const each of inside) {
    x += (each.begin - at) * perMs;
    if (each.begin > at) knots.push({ time: each.begin, x });
    x += fold;
    knots.push({ time: each.end, x });
    at = each.end;
  }
  if (window.end > at || knots.length === 1) knots.push({ time: Math.max(window.end, at + 1), x: x + Math.max(1, window.end - at) * perMs });
  const along = (value: number, from: "time" | "x", to: "time" | "x"): number => {
    let low = 0;
    let high = knots.length - 2;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((knots[middle] as { time: number; x: number })[from] <= value) low = middle;
      else high = middle - 1;
    }
    const [a, b] = [knots[low] as { time: number; x: number }, knots[low + 1] as { time: number; x: number }];
    return a[to] + ((value - a[from]) / (b[from] - a[from] || 1)) * (b[to] - a[to]);
  };
  return { window, width, folds: inside, x: (time) => along(time, "time", "x"), time: (place) => along(place, "x", "time") };
}

const SECOND = 1000;
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((each) => each * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((each) => each * 60 * SECOND),
  ...[1, 2, 3, 6, 12].map((each) => each * 3600 * SECOND),
  ...[1, 2, 7, 14, 30, 90, 180, 365].map((each) => each * 86_400 * SECOND),
];

export interface Tick {
  x: number;
  label: string;
}

/** Ticks at round distances from the begin of the run, where there is room for their labels. */
export function ticksOf(scale: Scale, origin: number, room = 84): Tick[] {
  const { window, width, folds } = scale;
  const idle = folds.reduce((sum, each) => sum + each.end - each.begin, 0);
  const awake = Math.max(1, window.end - window.begin - idle);
  const step = STEPS.find((each) => (each / awake) * width >= room) ?? (STEPS.at(-1) as number) * Math.ceil((awake / width) * (room / (STEPS.at(-1) as number)));
  const found: Tick[] = [];
  let last = -Infinity;
  const put = (time: number): void => {
    const x = scale.x(time);
    if (x < last + room * 0.7 || x > width + 0.5) return;
    found.push({ x, label: offset(time - origin, step) });
    last = x;
  };
  let at = window.begin;
  for (const fold of [...folds, { begin: window.end, end: window.end }]) {
    for (let time = origin + Math.ceil((at - origin) / step) * step; time <= fold.begin; time += step) put(time);
    at = fold.end;
  }
  return found;
}

/** How far a moment is from the begin, as exact as the step between two ticks. */
export function offset(milliseconds: number, step: number): string {
  if (Math.abs(milliseconds) < 0.5) return "0";
  const sign = milliseconds < 0 ? "-" : "+";
  const value = Math.abs(milliseconds);
  if (step < SECOND && value >= 10_000) return `${sign}${(value / SECOND).toFixed(step < 10 ? 3 : step < 100 ? 2 : 1)}s`;
  if (step < SECOND && value >= SECOND) return `${sign}${Number((value / SECOND).toFixed(3))}s`;
  if (step < SECOND) return `${sign}${duration(value / SECOND)}`;
  const parts: string[] = [];
  let left = Math.round(value / SECOND) * SECOND;
  for (const [unit, length] of UNITS) {
    const many = Math.floor(left / length);
    left -= many * length;
    if (many) parts.push(`${many}${unit}`);
  }
  return `${sign}${parts.join(" ")}`;
}

const UNITS = [["d", 86_400 * SECOND], ["h", 3600 * SECOND], ["m", 60 * SECOND], ["s", SECOND]] as const;

// -- Bars --------------------------------------------------------------------------------------------------------------

export interface Piece extends Span {
  bar: Bar;
  index: number;
  isOpen: boolean;
}

/** Bars as spans; what has not ended ends now. */
export function piecesOf(bars: readonly Bar[], now: number): Piece[] {
  return bars.map((bar, index) => {
    const begin = Date.parse(bar.begin);
    const isOpen = bar.end === null;
    return { begin, end: Math.max(begin, isOpen ? now : Date.parse(bar.end as string)), bar, index, isOpen };
  });
}

/** Put spans into as few rows as keep them from covering each other; those beyond `most` rows share the last one. */
export function packed<T extends Span>(spans: readonly T[], most = 6): { row: number[]; rows: number } {
  const order = spans.map((_, index) => index).sort((a, b) => (spans[a] as T).begin - (spans[b] as T).begin || a - b);
  const ends: number[] = [];
  const row = new Array<number>(spans.length).fill(0);
  for (const index of order) {
    const span = spans[index] as T;
    let free = ends.findIndex((end) => end <= span.begin);
    if (free < 0) free = ends.length < most ? ends.length : most - 1;
    ends[free] = Math.max(ends[free] ?? -Infinity, span.end);
    row[index] = free;
  }
  return { row, rows: Math.max(1, ends.length) };
}

/** A shorter stretch in which nothing works is no idle time to a person. */
const LEAST_IDLE_MS = 1000;

/** Stretches in which nothing works, long enough to be worth a fold. */
export function idleSpans(lanes: readonly Lane[], whole: Window, now: number, share = 0.06): Span[] {
  const busy: Span[] = [];
  for (const lane of lanes) {
    for (const bar of lane.bars ?? []) if (bar.kind === "work" || bar.kind === "queue") busy.push({ begin: Date.parse(bar.begin), end: bar.end === null ? now : Date.parse(bar.end) });
    for (const bin of lane.density ?? []) if (bin.work > 0) busy.push({ begin: Date.parse(bin.begin), end: Date.parse(bin.end) });
  }
  busy.sort((a, b) => a.begin - b.begin);
  const gaps: Span[] = [];
  let at = whole.begin;
  for (const each of busy) {
    if (each.begin > at) gaps.push({ begin: at, end: Math.min(each.begin, whole.end) });
    at = Math.max(at, each.end);
  }
  if (whole.end > at) gaps.push({ begin: at, end: whole.end });
  const length = whole.end - whole.begin;
  const margin = Math.min(length * 0.005, (length - gaps.reduce((sum, gap) => sum + gap.end - gap.begin, 0)) * 0.05);
  // A little of the idle time stays on both sides, so that bars do not touch the fold.
  return gaps
    .map((gap) => ({ begin: gap.begin + Math.min((gap.end - gap.begin) * 0.05, margin), end: gap.end - Math.min((gap.end - gap.begin) * 0.05, margin) }))
    .filter((gap) => gap.end - gap.begin > Math.max(LEAST_IDLE_MS, length * share));
}

/** The part of a window that zooming leaves, around a moment that stays in its place. */
export function zoomed(window: Window, factor: number, at: number, whole: Window, least = 1): Window {
  const length = Math.min(whole.end - whole.begin, Math.max(least, (window.end - window.begin) / factor));
  const share = (at - window.begin) / (window.end - window.begin || 1);
  return within({ begin: at - length * share, end: at + length * (1 - share) }, whole);
}

/** Move a window back into the whole. */
export function within(window: Window, whole: Window): Window {
  const length = Math.min(window.end - window.begin, whole.end - whole.begin);
  const begin = Math.max(whole.begin, Math.min(whole.end - length, window.begin));
  return { begin, end: begin + length };
}

/** The whole of a timeline: from its begin to its end, and to now while the run goes on. */
export function wholeOf(timeline: Timeline, now: number | null): Window {
  const begin = Date.parse(timeline.begin);
  const end = Math.max(Date.parse(timeline.end), now ?? 0, begin + 1);
  return { begin, end: end + (end - begin) * 0.01 };
}

/** When a tick was: the nearest moment that a bar tells of it; null if none does. */
export function momentOf(lanes: readonly Lane[], tick: number): number | null {
  let best: { tick: number; at: number } | null = null;
  for (const lane of lanes) {
    for (const bar of lane.bars ?? []) {
      if (bar.tick <= tick && (!best || bar.tick > best.tick)) best = { tick: bar.tick, at: Date.parse(bar.begin) };
    }
  }
  return best?.at ?? null;
}

export const BAR_WORDS: Record<Bar["kind"], string> = { work: "work", wait: "wait", delay: "delay", queue: "in the queue" };

/** What a bar is, in words: "attempt 2, failed after 1.2s". */
export function barName(bar: Bar, now: number): string {
  const parts: string[] = [];
  if (bar.kind === "work") parts.push(`attempt ${bar.attempt}`);
  else parts.push(BAR_WORDS[bar.kind]);
  if (bar.iteration !== null) parts.push(`iteration ${bar.iteration}`);
  const length = duration(((bar.end === null ? now : Date.parse(bar.end)) - Date.parse(bar.begin)) / 1000);
  parts.push(bar.status === "running" || bar.end === null ? `for ${length} so far` : bar.status === "failed" ? `failed after ${length}` : bar.status === "cancelled" ? `cancelled after ${length}` : length);
  return parts.join(", ");
}
