/** Figures in Prometheus' text format: read, and turned into rates and quantiles between two looks. Pure. */

export interface Sample {
  labels: Readonly<Record<string, string>>;
  value: number;
}

/** What one look at `/metrics` gave: samples by name. */
export interface Scrape {
  /** Milliseconds since 1970. */
  at: number;
  samples: ReadonlyMap<string, readonly Sample[]>;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Read a text of format 0.0.4. A line that is none is left out: one odd figure does not take the others away. */
export function parseMetrics(text: string, at: number): Scrape {
  const samples = new Map<string, Sample[]>();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name = "", labels, number = ""] = found;
    const value = number === "+Inf" ? Infinity : number === "-Inf" ? -Infinity : Number(number);
    if (Number.isNaN(value)) continue;
    const sample = { labels: labels === undefined ? {} : readLabels(labels), value };
    const known = samples.get(name);
    if (known) known.push(sample);
    else samples.set(name, [sample]);
  }
  return { at, samples };
}

function readLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const [, name = "", value = ""] of text.matchAll(LABEL)) labels[name] = value.replace(/\\(.)/g, (_, sign: string) => (sign === "n" ? "\n" : sign));
  return labels;
}

export type Where = Readonly<Record<string, string>>;

function fits(sample: Sample, where: Where | undefined): boolean {
  return !where || Object.entries(where).every(([name, value]) => sample.labels[name] === value);
}

/** Add up the samples of a name; null if there are none. */
export function total(scrape: Scrape, name: string, where?: Where): number | null {
  const found = scrape.samples.get(name)?.filter((sample) => fits(sample, where));
  return found?.length ? found.reduce((sum, sample) => sum + sample.value, 0) : null;
}

/** By how much a counter has grown. One that is smaller than before began anew with its process. */
export function growth(before: Scrape | null, now: Scrape, name: string, where?: Where): number | null {
  const end = total(now, name, where);
  if (end === null) return null;
  const begin = before ? (total(before, name, where) ?? 0) : 0;
  return end >= begin ? end - begin : end;
}

/** How often per second a counter went up between two looks. */
export function rate(before: Scrape, now: Scrape, name: string, where?: Where): number | null {
  const seconds = (now.at - before.at) / 1000;
  const grown = growth(before, now, name, where);
  return grown === null || seconds <= 0 ? null : grown / seconds;
}

/** The values of a histogram by upper bound, cumulated, between two looks; of all time without a first one. */
function buckets(before: Scrape | null, now: Scrape, name: string, where?: Where): [number, number][] {
  const sums = new Map<number, number>();
  const add = (scrape: Scrape, sign: number): void => {
    for (const sample of scrape.samples.get(`${name}_bucket`) ?? []) {
      if (!fits(sample, where)) continue;
      const bound = sample.labels["le"] === "+Inf" ? Infinity : Number(sample.labels["le"]);
      sums.set(bound, (sums.get(bound) ?? 0) + sign * sample.value);
    }
  };
  add(now, 1);
  const begunAnew = before !== null && (total(before, `${name}_count`, where) ?? 0) > (total(now, `${name}_count`, where) ?? 0);
  if (before && !begunAnew) add(before, -1);
  return [...sums].sort((a, b) => a[0] - b[0]);
}

/** Estimate a quantile of a histogram, as Prometheus does: linear within a bucket. Null if nothing was measured. */
export function quantile(share: number, before: Scrape | null, now: Scrape, name: string, where?: Where): number | null {
  const found = buckets(before, now, name, where);
  const all = found.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const wanted = share * all;
  let bottom = 0;
  let below = 0;
  for (const [bound, count] of found) {
    if (count >= wanted) return bound === Infinity ? bottom : count === below ? bound : bottom + ((bound - bottom) * (wanted - below)) / (count - below);
    bottom = bound;
    below = count;
  }
  return bottom;
}

/** The values that a label has among the samples of some names. */
export function valuesOf(scrape: Scrape, label: string, names: readonly string[]): string[] {
  const found = new Set<string>();
  for (const name of names) for (const sample of scrape.samples.get(name) ?? []) if (sample.labels[label] !== undefined) found.add(sample.labels[label]);
  return [...found].sort();
}

/** One point of the charts: null where nothing was measured. */
export type Point = { at: number } & Record<string, number | null>;

function sum(...values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

/** Turn two looks into what the charts show. */
export function pointOf(before: Scrape, now: Scrape): Point {
  const running = total(now, "loom_runs", { status: "running" });
  const owned = total(now, "loom_runs_owned");
  return {
    at: now.at,
    started: rate(before, now, "loom_runs_started_total"),
    ended: sum(rate(before, now, "loom_runs_completed_total"), rate(before, now, "loom_runs_failed_total"), rate(before, now, "loom_runs_cancelled_total")),
    steps: rate(before, now, "loom_step_seconds_count"),
    commit50: quantile(0.5, before, now, "loom_commit_seconds"),
    commit95: quantile(0.95, before, now, "loom_commit_seconds"),
    http50: quantile(0.5, before, now, "loom_http_request_seconds"),
    http95: quantile(0.95, before, now, "loom_http_request_seconds"),
    running,
    idle: total(now, "loom_runs_idle"),
    inMemory: total(now, "loom_runs_in_memory"),
    released: running === null || owned === null ? null : Math.max(0, running - owned),
    retries: rate(before, now, "loom_step_retries_total"),
    stepFailures: rate(before, now, "loom_step_failures_total"),
    failed: rate(before, now, "loom_runs_failed_total"),
    stalled: growth(before, now, "loom_loop_stalled_seconds_total"),
    memory: total(now, "loom_memory_bytes"),
    store: total(now, "loom_store_bytes"),
    late95: quantile(0.95, before, now, "loom_timer_lateness_seconds"),
    resume95: quantile(0.95, before, now, "loom_run_resume_seconds"),
  };
}

/** The least round number that is not below a value: the top of an axis. */
export function niceTop(value: number): number {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((factor) => factor * unit >= value * 0.9999) ?? 10) * unit;
}

/** Draw values as the paths of a line; where nothing was measured, or nobody looked for long, it is broken. */
export function linePath(points: readonly { at: number; value: number | null }[], x: (at: number) => number, y: (value: number) => number, gap: number): string {
  let path = "";
  let last: number | null = null;
  for (const { at, value } of points) {
    if (value === null) {
      last = null;
      continue;
    }
    const begins = last === null || at - last > gap;
    path += `${begins ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A single value between gaps is a dot: a line of no length with round ends.
    if (begins) path += "h0";
    last = at;
  }
  return path;
}
