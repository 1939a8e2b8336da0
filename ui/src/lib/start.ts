/** The start of a run as a request and as a command. */
import type { Place } from "../api/errors";

export interface StartGiven {
  workflow: string;
  input: unknown;
  runId: string;
  tags: Record<string, string>;
  parameters?: unknown;
  variables?: Record<string, unknown> | null;
}

function entries(value: unknown): [string, unknown][] {
  return typeof value === "object" && value !== null ? Object.entries(value) : [];
}

/** The body of `POST /v1/runs`; what is empty is left out. */
export function startBody(given: StartGiven): Record<string, unknown> {
  return {
    workflow: given.workflow,
    ...(given.input === undefined ? {} : { input: given.input }),
    ...(given.runId ? { run_id: given.runId } : {}),
    ...(Object.keys(given.tags).length ? { tags: given.tags } : {}),
    ...(entries(given.parameters).length ? { parameters: given.parameters } : {}),
    ...(entries(given.variables).length ? { variables: given.variables } : {}),
  };
}

/** The words of `loom runs start` that do the same. */
export function startCommand(given: StartGiven): string[] {
  const pair = ([name, value]: [string, unknown]): string => `${name}=${JSON.stringify(value)}`;
  return [
    "runs",
    "start",
    given.workflow,
    ...(given.input === undefined ? [] : [JSON.stringify(given.input)]),
    ...(given.runId ? ["--run-id", given.runId] : []),
    ...Object.entries(given.tags).flatMap(([name, value]) => ["--tag", `${name}=${value}`]),
    ...entries(given.parameters).flatMap((each) => ["--parameter", pair(each)]),
    ...entries(given.variables).flatMap((each) => ["--variable", pair(each)]),
  ];
}

/** Problems below a place of a request, with pointers that begin there. */
export function placesBelow(places: readonly Place[], prefix: string): Place[] {
  return places.filter(({ path }) => path === prefix || path.startsWith(`${prefix}/`)).map(({ path, message }) => ({ path: path.slice(prefix.length), message }));
}

/** A key that makes a repeated request count once. Pages without https have no `randomUUID`. */
export function randomKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export interface ScheduleGiven {
  name: string;
  workflow: string;
  cron?: string;
  /** Seconds. */
  every?: number;
  zone: string;
  input: unknown;
  parameters?: unknown;
  tags: Record<string, string>;
  catchUp: boolean;
}

/** The body of `POST /v1/schedules`; what is empty is left out. */
export function scheduleBody(given: ScheduleGiven): Record<string, unknown> {
  return {
    name: given.name,
    workflow: given.workflow,
    ...(given.cron === undefined ? {} : { cron: given.cron }),
    ...(given.every === undefined ? {} : { every: given.every }),
    ...(given.zone ? { time_zone: given.zone } : {}),
    ...(given.input === undefined ? {} : { input: given.input }),
    ...(entries(given.parameters).length ? { parameters: given.parameters } : {}),
    ...(Object.keys(given.tags).length ? { tags: given.tags } : {}),
    ...(given.catchUp ? { catch_up: true } : {}),
  };
}

/** The words of `loom schedule create` that do the same. */
export function scheduleCommand(given: ScheduleGiven): string[] {
  return [
    "schedule",
    "create",
    given.name || "NAME",
    given.workflow || "WORKFLOW",
    ...(given.cron === undefined ? [] : ["--cron", given.cron]),
    ...(given.every === undefined ? [] : ["--every", `${given.every}s`]),
    ...(given.zone ? ["--time-zone", given.zone] : []),
    ...(given.input === undefined ? [] : ["--input", JSON.stringify(given.input)]),
    ...entries(given.parameters).flatMap(([name, value]) => ["--parameter", `${name}=${JSON.stringify(value)}`]),
    ...Object.entries(given.tags).flatMap(([name, value]) => ["--tag", `${name}=${value}`]),
    ...(given.catchUp ? ["--catch-up"] : []),
  ];
}
