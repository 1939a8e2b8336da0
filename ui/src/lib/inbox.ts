/** What people are asked: the waiters of runs as a list, the answer to one as a request, and what the run did next. Pure. */
import type { Delivery, Run, Waiter, Why } from "../api/types";
import { shortType } from "./format";
import { promptText } from "./runs";

export interface Question {
  /** The same while the run waits for the same thing. */
  key: string;
  run: Run;
  waiter: Waiter;
  /** Since when it waits, as far as that is known. */
  since: string;
}

export function keyOf(runId: string, waiter: Pick<Waiter, "step" | "waiter_id" | "event_type" | "since">): string {
  return [runId, waiter.step, waiter.waiter_id ?? "", waiter.event_type, waiter.since ?? ""].join("|");
}

/** Whether a person can answer a waiter; else another program or run does. */
export function isForPeople(waiter: Pick<Waiter, "kind">): boolean {
  return waiter.kind === "event" || waiter.kind === "input";
}

/** All questions of the runs, oldest first, and the runs that only wait for programs. */
export function questionsOf(runs: readonly Run[]): { questions: Question[]; others: Run[] } {
  const questions: Question[] = [];
  const others: Run[] = [];
  for (const run of runs) {
    const waiters = run.active_waiters ?? [];
    const asked = waiters.filter(isForPeople);
    if (waiters.length && !asked.length) others.push(run);
    for (const waiter of asked) questions.push({ key: keyOf(run.run_id, waiter), run, waiter, since: waiter.since ?? run.idle_since ?? run.updated_at });
  }
  questions.sort((a, b) => (a.since < b.since ? -1 : a.since > b.since ? 1 : a.key < b.key ? -1 : 1));
  return { questions, others };
}

/**
 * The questions to show: those that are open, those that were answered here and stay in their place, and the one that
 * somebody writes an answer to although it is gone. `answered` holds the tick of the run when the answer was sent: a
 * question of that tick or before is the answered one, as the list has not heard of the answer yet.
 */
export function shownQuestions(open: readonly Question[], answered: ReadonlyMap<string, { question: Question; tick: number }>, kept: Question | null): Question[] {
  const shown = open.filter((question) => {
    const before = answered.get(question.key);
    return !before || question.run.tick > before.tick;
  });
  const known = new Set(shown.map((question) => question.key));
  for (const { question } of answered.values()) if (!known.has(question.key)) shown.push(question);
  if (kept && !known.has(kept.key) && !answered.has(kept.key)) shown.push(kept);
  return shown.sort((a, b) => (a.since < b.since ? -1 : a.since > b.since ? 1 : a.key < b.key ? -1 : 1));
}

/** The question in one line. */
export function titleOf(waiter: Pick<Waiter, "prompt" | "event_type">): string {
  const text = promptText(waiter.prompt).trim().replaceAll(/\s+/g, " ");
  return text ? (text.length > 240 ? `${text.slice(0, 240)}…` : text) : `Waits for ${shortType(waiter.event_type)}`;
}

/** What an object asks besides its question: its other fields, as texts or as values to unfold. */
export function detailsOf(prompt: unknown): [string, unknown][] {
  if (typeof prompt !== "object" || prompt === null || Array.isArray(prompt)) return [];
  const title = promptText(prompt);
  // Without a question among them, the title says all fields already if it is short.
  const isTitle = title.length <= 100 && !Object.values(prompt).includes(title);
  if (isTitle) return [];
  return Object.entries(prompt).filter(([, value]) => value !== title && value !== null && value !== "");
}

export interface Answer {
  type: string;
  value?: unknown;
  step?: string;
  waiter_id?: string;
  event_id: string;
}

/** The body of the request that answers a waiter. The same `eventId` counts once, so that a lost answer can be sent again. */
export function answerFor(waiter: Pick<Waiter, "event_type" | "step" | "waiter_id">, value: unknown, eventId: string): Answer {
  return { type: waiter.event_type, ...(value === undefined ? {} : { value }), ...(waiter.waiter_id ? { waiter_id: waiter.waiter_id } : { step: waiter.step }), event_id: eventId };
}

export function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ---------------------------------------------------------------- what happened next

export interface Outcome {
  text: string;
  tone: "ok" | "bad" | "warn" | "busy";
  /** Whether nothing more is to be told. */
  final: boolean;
  /** The run took the answer and found that it does not fit: it waits for another. */
  refused?: boolean;
}

function cut(text: string): string {
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

/** The result of a run in one line: of an event with one field, the field. */
export function resultText(run: Pick<Run, "result">): string {
  const value = run.result?.value;
  if (value === null || value === undefined) return "";
  const fields = typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [];
  const only = fields.length === 1 ? (fields[0] as [string, unknown])[1] : value;
  return only === null || (fields.length === 0 && typeof value === "object" && !Array.isArray(value)) ? "" : cut(typeof only === "string" ? only : JSON.stringify(only));
}

/** What a run did after an answer; null while it has not taken it. */
export function outcomeOf(run: Run, question: Question, sentTick: number): Outcome | null {
  if (run.status === "completed") return { text: `The run completed${resultText(run) ? `: ${resultText(run)}` : "."}`, tone: "ok", final: true };
  if (run.status === "failed") return { text: cut(`The run failed: ${run.error?.message ?? "without a reason"}`), tone: "bad", final: true };
  if (run.status === "cancelled") return { text: "The run was cancelled.", tone: "warn", final: true };
  const waiters = run.active_waiters ?? [];
  const same = waiters.find((waiter) => keyOf(run.run_id, waiter) === question.key);
  const before = question.waiter.refused?.at ?? "";
  if (same?.refused && same.refused.at > before) return { text: cut(`The run refused it: ${same.refused.reason}`), tone: "bad", final: true, refused: true };
  if (run.tick <= sentTick) return null;
  if (run.error?.code === "unanswered") return { text: "No worker answers. The run takes it when one is back.", tone: "warn", final: true };
  if (run.parked) return { text: cut(`The run is parked: ${run.parked}`), tone: "warn", final: true };
  if (run.paused) return { text: "The run is paused. It goes on when it is resumed.", tone: "warn", final: true };
  const next = waiters.find(isForPeople);
  if (next && run.idle_since) return { text: cut(`The run went on, and asks again: ${titleOf(next)}`), tone: "ok", final: true };
  if (run.asleep) return { text: "The run went on, and sleeps now.", tone: "ok", final: true };
  return { text: "The run went on.", tone: "busy", final: false };
}

/** What an acknowledgment alone tells. */
export function deliveryText(delivery: Delivery): Outcome {
  if (delivery.duplicate) return { text: "It was there already.", tone: "ok", final: false };
  if (delivery.delivered === "kept") return { text: "Nothing takes it yet: the run keeps it until something does.", tone: "warn", final: false };
  if (delivery.delivered === "inbox") return { text: "It is stored. Another server has the run, and takes it.", tone: "busy", final: false };
  if (delivery.delivered === null) return { text: "It is stored, and no step takes it.", tone: "warn", final: false };
  return { text: "The run has it.", tone: "busy", final: false };
}

interface Asked {
  run: () => Promise<Run>;
  why: () => Promise<Why>;
  pause: (milliseconds: number) => Promise<void>;
}

/** Look a few seconds at what a run does after an answer, and tell each change. */
export async function follow(question: Question, sentTick: number, ask: Asked, tell: (outcome: Outcome) => void, signal: AbortSignal): Promise<Outcome | null> {
  let last: Outcome | null = null;
  for (const pause of [100, 200, 300, 500, 700, 1000, 1000, 1500, 2000]) {
    await ask.pause(pause);
    if (signal.aborted) return last;
    const run = await ask.run();
    let outcome = outcomeOf(run, question, sentTick);
    if (!outcome) continue;
    if (!outcome.final) {
      const why = await ask.why();
      outcome = why.status === "running" ? { ...outcome, text: `The run went on: ${lowerFirst(why.sentence)}` } : outcome;
    }
    if (signal.aborted) return last;
    last = outcome;
    tell(outcome);
    if (outcome.final) return outcome;
  }
  return last;
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
