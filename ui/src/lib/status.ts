/** The states of a run as people name them: each with a word, a mark and a color, so that color never stands alone. */
import type { Run } from "../api/types";

export type RunState = "running" | "waiting" | "idle" | "asleep" | "paused" | "parked" | "stuck" | "completed" | "failed" | "cancelled";
export type Tone = "ok" | "bad" | "warn" | "busy" | "wait" | "calm";

export interface StateLook {
  label: string;
  tone: Tone;
  mark: string;
  about: string;
}

export const STATES: Record<RunState, StateLook> = {
  running: { label: "running", tone: "busy", mark: "▶", about: "A step or an action executes, or will at once." },
  waiting: { label: "waiting", tone: "wait", mark: "?", about: "It waits for an event: somebody has to answer." },
  idle: { label: "idle", tone: "wait", mark: "○", about: "Only something from outside can move it." },
  asleep: { label: "asleep", tone: "calm", mark: "☾", about: "Only a timer will move it." },
  paused: { label: "paused", tone: "warn", mark: "‖", about: "It starts nothing until it is resumed." },
  parked: { label: "parked", tone: "warn", mark: "■", about: "It cannot go on with the code of its workers." },
  stuck: { label: "stuck", tone: "bad", mark: "!", about: "It is idle, and nothing can move it." },
  completed: { label: "completed", tone: "ok", mark: "✓", about: "It has ended well." },
  failed: { label: "failed", tone: "bad", mark: "✕", about: "It has ended with an error." },
  cancelled: { label: "cancelled", tone: "calm", mark: "–", about: "It was cancelled." },
};

/** The one word for a run: the most decisive state that holds. */
export function stateOf(run: Pick<Run, "status" | "parked" | "paused" | "stuck" | "idle_since" | "asleep" | "active_waiters">): RunState {
  if (run.status !== "running") return run.status;
  if (run.parked) return "parked";
  if (run.paused) return "paused";
  if (run.stuck) return "stuck";
  if (run.asleep) return "asleep";
  if (run.idle_since) return run.active_waiters?.length ? "waiting" : "idle";
  return "running";
}
