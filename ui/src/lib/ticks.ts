/** What the journal of a run tells: ticks in words, failed attempts, and what the run began with. Pure. */
import type { HistoryItem } from "../api/types";
import { shortType } from "./format";

type Fields = Record<string, unknown>;

function fields(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function eventName(value: unknown): string {
  return shortType(text(fields(value)["type"])) || "an event";
}

export function tickType(item: HistoryItem): string {
  return text(fields(item.tick)["type"]);
}

/** The types of ticks, as `GET /history?type=` takes them, with the words for a filter. */
export const TICK_TYPES: readonly [string, string][] = [
  ["TickStartRun", "Start"],
  ["TickAddEvent", "Event came in"],
  ["TickStepResult", "Step or action ended"],
  ["TickTimerFired", "Timer fired"],
  ["TickTimeout", "Timeout"],
  ["TickAwaitEvent", "Wait began"],
  ["TickSleep", "Sleep began"],
  ["TickEndWait", "Wait ended"],
  ["TickLeaveStep", "Step left memory"],
  ["TickRefuseEvent", "Event refused"],
  ["TickPublishEvent", "Event published"],
  ["TickEditStore", "Store edited"],
  ["TickRecordResult", "Result recorded"],
  ["TickStartChild", "Child started"],
  ["TickChildEnded", "Child ended"],
  ["TickPauseRun", "Paused"],
  ["TickContinueRun", "Resumed"],
  ["TickParkRun", "Parked"],
  ["TickRetryRun", "Retried"],
  ["TickCancelRun", "Cancelled"],
  ["TickResume", "Taken up again"],
];

/** Say a tick in a few words. */
export function describeTick(item: HistoryItem): string {
  const tick = fields(item.tick);
  const step = text(tick["step"]) || text(fields(tick["source"])["step"]);
  const type = text(tick["type"]);
  switch (type) {
    case "TickStartRun":
      return `The run begins with ${eventName(tick["event"])}`;
    case "TickAddEvent":
      return `${eventName(tick["event"])} comes in${step ? ` for ${step}` : ""}`;
    case "TickStepResult": {
      const failed = failureOf(item);
      if (failed) return `${step} failed${failed.attempt ? ` (attempt ${failed.attempt}${failed.max ? ` of ${failed.max}` : ""})` : ""}: ${failed.message}`;
      const returned = Array.isArray(tick["returned"]) ? tick["returned"] : [];
      if (outcomeOf(tick)) return `${step} ended: ${text(outcomeOf(tick)?.["status"])}`;
      const names = [...new Set(returned.map(eventName))];
      return returned.length ? `${step} returned ${returned.length > 1 ? `${returned.length} × ` : ""}${names.join(", ")}` : `${step} returned nothing`;
    }
    case "TickTimerFired":
      return `Timer ${String(tick["timer"])} fired`;
    case "TickTimeout":
      return "The run took too long";
    case "TickAwaitEvent":
      return `${step} waits for ${shortType(text(tick["event_type"]))}`;
    case "TickSleep":
      return `${step} sleeps for ${String(tick["delay_s"])} s`;
    case "TickEndWait":
      return `A wait of ${step} ended`;
    case "TickLeaveStep":
      return `${step} left memory while it waits`;
    case "TickRefuseEvent":
      return `${step} refused ${shortType(text(tick["event_type"]))}: ${text(tick["reason"])}`;
    case "TickPublishEvent":
      return `${step || "The run"} published ${eventName(tick["event"])}`;
    case "TickEditStore":
      return `${step || "Somebody"} changed ${[...Object.keys(fields(tick["changed"])), ...(Array.isArray(tick["removed"]) ? (tick["removed"] as string[]) : [])].join(", ") || "the store"}`;
    case "TickRecordResult":
      return `${step} recorded the result of ${text(tick["name"])}`;
    case "TickStartChild":
      return `${step} started a run of ${text(tick["workflow"])}`;
    case "TickChildEnded":
      return `Child ${String(tick["child"])} ended: ${text(tick["status"])}`;
    case "TickPauseRun":
      return "The run was paused";
    case "TickContinueRun":
      return "The run was resumed";
    case "TickParkRun":
      return `The run was parked: ${text(tick["reason"])}`;
    case "TickRetryRun":
      return "The run was retried";
    case "TickCancelRun":
      return `The run was cancelled${text(tick["reason"]) ? `: ${text(tick["reason"])}` : ""}`;
    case "TickResume":
      return "A process took the run up again";
    default:
      return type.replace(/^Tick/, "").replace(/(?<=[a-z])(?=[A-Z])/g, " ");
  }
}

export interface Failure {
  tick: number;
  at: string;
  step: string;
  type: string;
  message: string;
  traceback: string | null;
  attempt: number | null;
  max: number | null;
  /** When the next attempt is due; null if none follows. */
  nextAt: string | null;
}

/** The outcome of an action of a flow, which a result carries; null of steps. */
function outcomeOf(tick: Fields): Fields | null {
  const first = Array.isArray(tick["returned"]) ? fields(tick["returned"][0]) : {};
  return text(first["type"]) === "loom.flows.ActionOutcome" ? fields(first["fields"]) : null;
}

/** The failed attempt that a tick tells of; null if it tells of none. */
export function failureOf(item: HistoryItem): Failure | null {
  const tick = fields(item.tick);
  if (text(tick["type"]) !== "TickStepResult") return null;
  const base = { tick: item.seq, at: item.at, step: text(tick["step"]) };
  if (tick["failure"]) {
    const failure = fields(tick["failure"]);
    const delay = tick["retry_delay_s"];
    return {
      ...base,
      type: shortType(text(failure["type"])),
      message: text(failure["message"]),
      traceback: text(failure["traceback"]) || null,
      attempt: typeof tick["attempt"] === "number" ? tick["attempt"] : null,
      max: typeof tick["max_attempts"] === "number" && tick["max_attempts"] > 0 ? tick["max_attempts"] : null,
      nextAt: typeof delay === "number" ? new Date(Date.parse(item.at) + delay * 1000).toISOString() : null,
    };
  }
  const outcome = outcomeOf(tick);
  const status = text(outcome?.["status"]);
  if (!outcome || (status !== "Failed" && status !== "TimedOut")) return null;
  const attempt = outcome["attempt"];
  return {
    ...base,
    type: text(outcome["error_type"]) || text(outcome["code"]) || status,
    message: text(outcome["message"]) || status,
    traceback: text(outcome["traceback"]) || null,
    attempt: typeof attempt === "number" && attempt > 0 ? attempt : null,
    max: null,
    nextAt: null,
  };
}

export function failuresIn(items: readonly HistoryItem[]): Failure[] {
  return items.flatMap((item) => failureOf(item) ?? []);
}

export interface Beginning {
  type: string;
  /** The fields of the start event, or the body of a flow's trigger. */
  input: unknown;
  parameters: Fields;
  variables: Fields;
  isFlow: boolean;
}

/** What a run began with, from its first tick; null if that is no start. */
export function beginningOf(item: HistoryItem | undefined): Beginning | null {
  if (!item || tickType(item) !== "TickStartRun") return null;
  const event = fields(fields(item.tick)["event"]);
  const given = fields(event["fields"]);
  const isFlow = text(event["type"]) === "loom.flows.FlowStart";
  return {
    type: text(event["type"]),
    input: isFlow ? (given["body"] ?? null) : (event["fields"] ?? null),
    parameters: isFlow ? fields(given["parameters"]) : {},
    variables: isFlow ? fields(given["variables"]) : {},
    isFlow,
  };
}

/** Add ticks to those known: ordered, none twice. */
export function mergeTicks(known: readonly HistoryItem[], more: readonly HistoryItem[]): HistoryItem[] {
  const bySeq = new Map<number, HistoryItem>();
  for (const item of known) bySeq.set(item.seq, item);
  for (const item of more) bySeq.set(item.seq, item);
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq);
}

export interface Frame {
  place: string;
  code: string;
}

/** Split a traceback of the server: its headline, and its frames with the author's first. */
export function readTraceback(traceback: string): { headline: string; frames: Frame[] } {
  const head: string[] = [];
  const frames: Frame[] = [];
  for (const line of traceback.split("\n")) {
    if (/^\s*File ".*", line \d+/.test(line)) frames.push({ place: line.trim(), code: "" });
    else {
      const last = frames.at(-1);
      if (last) last.code += `${last.code ? "\n" : ""}${line.replace(/^ {4}/, "")}`;
      else if (line.trim() && !line.startsWith("Traceback (most recent")) head.push(line);
    }
  }
  return { headline: head.join("\n"), frames };
}

/** The step or action that a tick is about; empty for none. */
export function tickStep(item: HistoryItem): string {
  const tick = fields(item.tick);
  return text(tick["step"]) || text(fields(tick["source"])["step"]);
}
