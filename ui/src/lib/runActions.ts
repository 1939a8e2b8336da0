/** What can be done to a run, and why not. Pure. */
import type { Run, Why } from "../api/types";

export type ActionName = "send" | "retry" | "skip" | "resume" | "pause" | "cancel" | "start" | "fork" | "download" | "delete";
export type Scope = "read" | "start" | "event" | "admin";

export interface RunAction {
  name: ActionName;
  label: string;
  scope: Scope;
  /** Why the state of the run does not allow it; null if it does. */
  refusal: string | null;
  /** Offered as a button; else in the menu. */
  isNear: boolean;
  about: string;
}

const ENDED = "The run has ended.";
const ACTIVE = "The run has not ended yet.";

/** The kind of the delay that can be skipped, if the run is in one. */
export function delayOf(why: Why | null): "backoff" | "timer" | null {
  const kinds = why?.causes.map((cause) => cause.kind) ?? [];
  return kinds.includes("backoff") ? "backoff" : kinds.includes("timer") ? "timer" : null;
}

export function actionsOf(run: Run, why: Why | null): RunAction[] {
  const runs = run.status === "running";
  const delay = runs ? delayOf(why) : null;
  const stands = runs && (run.paused || run.parked !== null);
  return [
    { name: "skip", label: delay === "timer" ? "Go on now" : "Retry now", scope: "start", refusal: !runs ? ENDED : delay || run.next_timer_at ? null : "It is in no delay.", isNear: delay !== null, about: "End the delay or the back-off: the run goes on at once." },
    { name: "retry", label: "Retry", scope: "start", refusal: run.status === "failed" ? null : runs ? ACTIVE : "Only a failed run can be retried.", isNear: run.status === "failed", about: "Go on from the failed step, also with another event." },
    { name: "resume", label: run.parked ? "Try again" : "Resume", scope: "start", refusal: !runs ? ENDED : stands ? null : "It is neither paused nor parked.", isNear: stands, about: "Let it go on." },
    { name: "send", label: "Send event", scope: "event", refusal: runs ? null : ENDED, isNear: runs, about: "Send an event into the run." },
    { name: "pause", label: "Pause", scope: "start", refusal: !runs ? ENDED : run.paused ? "It is paused." : null, isNear: runs && !stands, about: "Start nothing new until it is resumed. It keeps what it is sent." },
    { name: "cancel", label: "Cancel", scope: "start", refusal: runs ? null : ENDED, isNear: runs, about: "Stop the run for good." },
    { name: "start", label: "Start like this", scope: "start", refusal: null, isNear: !runs, about: "Start another run with this input, or one near it." },
    { name: "fork", label: "Fork", scope: "start", refusal: null, isNear: !runs, about: "Make a new run that goes on from one of its ticks." },
    { name: "download", label: "Download", scope: "read", refusal: null, isNear: false, about: "Save the run, its journal or its events as a file." },
    { name: "delete", label: "Delete", scope: "admin", refusal: runs ? ACTIVE : null, isNear: false, about: "Remove the run and all that is stored of it." },
  ];
}
