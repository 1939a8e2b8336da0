/** The list of runs: its filters as an address, its order, what one line says of a run, and how changes come into it. Pure. */
import { mergeRows } from "../api/live";
import type { Counts, Run } from "../api/types";
import { shortType } from "./format";
import type { RunState } from "./status";

// ---------------------------------------------------------------- filters

/** The filters of `GET /v1/runs` that an address may name; the address uses the same names. */
const NAMES = ["status", "waiting", "idle", "asleep", "paused", "parked", "stuck", "workflow", "tag", "id_prefix", "waiting_for", "created_after", "created_before", "updated_after", "parent_id"] as const;
export type FilterName = (typeof NAMES)[number];
export type Filters = Partial<Record<FilterName, string[]>>;
export const ORDERS = ["-created_at", "created_at", "-updated_at", "updated_at"] as const;
export type Order = (typeof ORDERS)[number];

export function filtersOf(query: URLSearchParams): Filters {
  const filters: Filters = {};
  for (const name of NAMES) {
    const values = query.getAll(name).filter(Boolean);
    if (values.length) filters[name] = values;
  }
  return filters;
}

export function orderOf(query: URLSearchParams): Order {
  const order = query.get("order") as Order | null;
  return order && ORDERS.includes(order) ? order : "-created_at";
}

const AGE = /^(\d+)(s|m|h|d)$/;
const SECONDS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** A moment of a filter: an age such as `24h`, which stays young in a bookmark, or a moment as it is. */
export function momentOf(text: string, now: number): string {
  const age = AGE.exec(text);
  return age ? new Date(now - Number(age[1]) * (SECONDS[age[2] as string] as number) * 1000).toISOString() : text;
}

/** The filters as the API takes them. A name that may be said once takes the first value. */
export function apiFilters(filters: Filters, now: number): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = {};
  for (const [name, values] of Object.entries(filters)) {
    const first = values[0] as string;
    if (name === "status" || name === "workflow" || name === "tag") query[name] = values;
    else query[name] = name.endsWith("_after") || name.endsWith("_before") ? momentOf(first, now) : first;
  }
  return query;
}

const ID = /^[A-Za-z0-9._:~-]{1,200}$/;

/** Say why the server would refuse a prefix of an id; null if it would not. */
export function prefixFault(text: string): string | null {
  return text === "" || ID.test(text) ? null : "Run ids have letters, digits and . _ : ~ - only. For a tag type name=value and Enter.";
}

// ---------------------------------------------------------------- chips of states

/** The chips above the list, in the order of their meaning: those that go on, then those that have ended. */
export const CHIPS: readonly RunState[] = ["running", "waiting", "idle", "asleep", "paused", "parked", "stuck", "completed", "failed", "cancelled"];
const STATUSES: readonly RunState[] = ["running", "completed", "failed", "cancelled"];
const HOLDS = ["waiting", "idle", "asleep", "paused", "parked", "stuck"] as const;

export function isChosen(filters: Filters, chip: RunState): boolean {
  return STATUSES.includes(chip) ? (filters.status ?? []).includes(chip) : filters[chip as (typeof HOLDS)[number]]?.[0] === "true";
}

/** What the address becomes when a chip is pressed. Statuses add up; what holds a run stands alone. */
export function pressed(filters: Filters, chip: RunState): Record<string, string[] | null> {
  const change: Record<string, string[] | null> = Object.fromEntries(HOLDS.map((name) => [name, null]));
  const chosen = isChosen(filters, chip);
  if (!STATUSES.includes(chip)) return { ...change, status: null, [chip]: chosen ? null : ["true"] };
  const status = (filters.status ?? []).filter((each) => each !== chip);
  return { ...change, status: chosen ? status : [...status, chip] };
}

/** How many runs a chip stands for, of the chosen workflows; null if the server has not counted. */
export function chipCount(counts: Counts | null, chip: RunState | "total", workflows: readonly string[] | undefined): number | null {
  if (!counts) return null;
  if (!workflows?.length) return counts[chip];
  if (counts[chip] === null) return null;
  return counts.workflows.filter((each) => workflows.includes(each.workflow)).reduce((sum, each) => sum + each[chip], 0);
}

/** How many runs the filters match, where the counts tell; null where only the list could. */
export function expected(counts: Counts | null, filters: Filters): number | null {
  const names = Object.keys(filters).filter((name) => name !== "workflow") as FilterName[];
  if (names.length === 0) return chipCount(counts, "total", filters.workflow);
  if (names.length > 1) return null;
  const chips = CHIPS.filter((chip) => isChosen(filters, chip));
  if (chips.length === 0 || names[0] !== "status" && filters[names[0] as FilterName]?.[0] !== "true") return null;
  const numbers = chips.map((chip) => chipCount(counts, chip, filters.workflow));
  return numbers.some((each) => each === null) ? null : numbers.reduce((sum: number, each) => sum + (each as number), 0);
}

const WORDS: Partial<Record<FilterName, string>> = { tag: "tag", workflow: "workflow", id_prefix: "id", waiting_for: "waits for", created_after: "started after", created_before: "started before", updated_after: "changed after", parent_id: "children of" };

/** The filters that have no chip of their own, each with how to take it away. */
export function removable(filters: Filters): { name: FilterName; value: string; text: string; left: string[] }[] {
  return NAMES.filter((name) => WORDS[name] && name !== "id_prefix").flatMap((name) =>
    (filters[name] ?? []).map((value) => ({
      name,
      value,
      text: `${WORDS[name]} ${AGE.test(value) && name.includes("_after") ? `${value} ago` : value}`,
      left: (filters[name] ?? []).filter((each) => each !== value),
    })),
  );
}

/** The filters as options of `loom runs …`. */
export function filterOptions(filters: Filters): string[] {
  const options: string[] = [];
  for (const [name, values] of Object.entries(filters)) {
    const option = `--${name === "parent_id" ? "parent" : name.replaceAll("_", "-")}`;
    if ((HOLDS as readonly string[]).includes(name)) options.push(values[0] === "true" ? option : `--not-${name}`);
    else for (const value of values) options.push(option, value);
  }
  return options;
}

// ---------------------------------------------------------------- one line about a run

export interface Summary {
  text: string;
  /** A moment that the text ends with, shown relative to now. */
  at: string | null;
  tone: "bad" | "warn" | "plain";
}

/** What is asked, in one text. Of an object's fields, the one that reads like a question comes first. */
export function promptText(prompt: unknown): string {
  if (prompt === null || prompt === undefined) return "";
  if (typeof prompt !== "object") return String(prompt);
  if (Array.isArray(prompt)) return prompt.map(promptText).join(", ");
  const fields = prompt as Record<string, unknown>;
  const asked = ["question", "text", "prompt", "message", "msg", "title", "prefix"].map((name) => fields[name]).find((value) => typeof value === "string" && value !== "");
  if (asked !== undefined) return asked as string;
  return Object.entries(fields)
    .map(([name, value]) => `${name}: ${typeof value === "object" && value !== null ? JSON.stringify(value) : String(value)}`)
    .join(", ");
}

function firstLine(text: string): string {
  const line = text.trim().split("\n", 1)[0] ?? "";
  return line.length > 300 ? `${line.slice(0, 300)}…` : line;
}

const plain = (text: string, at: string | null = null): Summary => ({ text, at, tone: "plain" });

/** Milliseconds after which a timer counts as missed: no worker has taken it. A list of a cluster may be some seconds late. */
const MISSED_MS = 30_000;

/** What a run waits for, why it stands, or what it failed with. */
export function summaryOf(run: Run, now = 0): Summary {
  if (run.error && (run.status === "failed" || run.error.code === "unanswered" || run.error.code === "result-unreadable")) {
    const text = run.error.code === "unanswered" ? "No worker answers." : `${run.error.step ? `${run.error.step}: ` : ""}${run.error.type ? `${shortType(run.error.type)}: ` : ""}${run.error.message}`;
    return { text: firstLine(text), at: null, tone: run.status === "failed" ? "bad" : "warn" };
  }
  if (run.status === "cancelled") return plain(firstLine(run.error?.message ?? ""));
  if (run.status !== "running") return plain("");
  if (run.parked) return { text: firstLine(run.parked), at: null, tone: "warn" };
  if (run.stuck) return { text: firstLine(run.stuck), at: null, tone: "bad" };
  const asks = waitsFor(run);
  if (run.paused) return plain(asks ? `Paused. ${asks.text}` : "Paused: it starts nothing until it is resumed.");
  if (asks) return asks;
  if (run.asleep && !run.next_timer_at) return plain("Asleep until a timer is due.");
  if (run.asleep && Date.parse(run.next_timer_at as string) < now - MISSED_MS) return { text: "No worker has gone on with it. It was due", at: run.next_timer_at, tone: "warn" };
  if (run.asleep) return plain("Goes on", run.next_timer_at);
  return plain("");
}

function waitsFor(run: Run): Summary | null {
  const waiters = run.active_waiters ?? [];
  const first = waiters.find((waiter) => waiter.kind === "event" || waiter.kind === "input") ?? waiters[0];
  if (!first) return null;
  const more = waiters.length > 1 ? ` (and ${waiters.length - 1} more)` : "";
  if (first.kind === "child") return plain(`Waits for a child run.${more}`);
  if (first.kind === "callback") return plain(`Waits for a call from outside at ${first.step}.${more}`);
  const name = shortType(first.event_type);
  if (first.refused) return { text: firstLine(`Refused ${shortType(first.refused.event_type)}: ${first.refused.reason}`), at: null, tone: "warn" };
  const asked = firstLine(promptText(first.prompt));
  const text = `${asked ? `${asked} — ` : "Waits for "}${name}${more}`;
  return first.deadline ? plain(`${text}, until`, first.deadline) : plain(text);
}

/** How long a run took, or has been there; in seconds. Of one that goes on, whole minutes: an old row is not drawn anew each second. */
export function ageOf(run: Pick<Run, "created_at" | "completed_at">, now: number): number {
  const seconds = Math.max(0, ((run.completed_at ? Date.parse(run.completed_at) : now) - Date.parse(run.created_at)) / 1000);
  return run.completed_at || seconds < 60 ? seconds : Math.floor(seconds / 60) * 60;
}

// ---------------------------------------------------------------- changes

/** Compare two runs as the server orders them. */
export function compare(order: Order): (a: Run, b: Run) => number {
  const field = order.endsWith("created_at") ? "created_at" : "updated_at";
  const sign = order.startsWith("-") ? -1 : 1;
  return (a, b) => (a[field] === b[field] ? 0 : a[field] < b[field] ? -sign : sign);
}

export interface ListState {
  rows: readonly Run[];
  /** Whether the rows are all there are: no further page. */
  complete: boolean;
  order: Order;
}

/**
 * Take changes into the rows. `hold` keeps new rows back, because somebody looks at a place further down: they are
 * returned as `newer`. A row that belongs to a page that was not loaded is left to that page.
 */
export function takeChanges(list: ListState, changed: ReadonlyMap<string, Run>, gone: ReadonlySet<string>, hold: boolean): { rows: readonly Run[]; newer: Run[] } {
  const { rows, complete, order } = list;
  const sorted = compare(order);
  const last = rows.at(-1);
  const belongs = (run: Run): boolean => complete || !last || sorted(run, last) < 0;
  const newer: Run[] = [];
  const merged = mergeRows(rows, changed, gone, (run) => {
    if (!belongs(run)) return false;
    if (hold) newer.push(run);
    return !hold;
  });
  const moves = order.endsWith("updated_at") && !hold;
  return { rows: merged.added > 0 || moves ? merged.rows.sort(sorted) : merged.rows, newer };
}

/** Take in a first page that was asked for again: what it should hold and does not is gone. */
export function takeFirstPage(list: ListState, page: readonly Run[], isAll: boolean): { changed: Map<string, Run>; gone: Set<string> } {
  const changed = new Map(page.map((run) => [run.run_id, run]));
  const sorted = compare(list.order);
  const last = page.at(-1);
  const gone = list.rows.filter((run) => !changed.has(run.run_id) && (isAll || (last && sorted(run, last) < 0)));
  return { changed, gone: new Set(gone.map((run) => run.run_id)) };
}

/** Append a further page; a run that has moved meanwhile is there once, in its newer form. */
export function append(rows: readonly Run[], page: readonly Run[]): Run[] {
  const known = new Map(rows.map((run, index) => [run.run_id, index]));
  const result = [...rows];
  for (const run of page) {
    const index = known.get(run.run_id);
    if (index === undefined) result.push(run);
    else if ((result[index] as Run).tick < run.tick) result[index] = run;
  }
  return result;
}

/** The ids between two rows, both included. */
export function range(rows: readonly { run_id: string }[], from: string, to: string): string[] {
  const first = rows.findIndex((run) => run.run_id === from);
  const second = rows.findIndex((run) => run.run_id === to);
  if (first < 0 || second < 0) return [to];
  return rows.slice(Math.min(first, second), Math.max(first, second) + 1).map((run) => run.run_id);
}

