/** Actions on many runs: what each is, to which runs it applies, and how selected ones are done one by one. */
import { api, part } from "../api/client";
import { ApiError, asError } from "../api/errors";
import type { Bulk, BulkAction, Run } from "../api/types";
import type { Filters } from "./runs";
import type { IconName } from "../components/Icon.svelte";

export interface Deed {
  action: BulkAction;
  label: string;
  /** What has happened to the runs then: `12 runs cancelled`. */
  past: string;
  about: string;
  icon: IconName;
  scope: "start" | "admin";
  /** Whether it can work on a run as the list shows it. */
  fits: (run: Run) => boolean;
  /** The statuses that a run may have for it. */
  statuses: readonly string[];
}

export const DEEDS: readonly Deed[] = [
  { action: "cancel", label: "Cancel", past: "asked to stop", about: "They stop for good. What they have done stays done.", icon: "stop", scope: "start", fits: (run) => run.status === "running", statuses: ["running"] },
  { action: "retry", label: "Retry", past: "retried", about: "They go on from the step that failed.", icon: "retry", scope: "start", fits: (run) => run.status === "failed", statuses: ["failed"] },
  { action: "pause", label: "Pause", past: "paused", about: "They start nothing new until they are resumed. What executes ends, and events are kept.", icon: "pause", scope: "start", fits: (run) => run.status === "running" && !run.paused, statuses: ["running"] },
  { action: "resume", label: "Resume", past: "resumed", about: "They go on. Parked ones are tried with the code that is served now.", icon: "play", scope: "start", fits: (run) => run.status === "running" && (run.paused || run.parked !== null), statuses: ["running"] },
  { action: "delete", label: "Delete", past: "deleted", about: "They are gone, with their history, events and state. This cannot be taken back. Only runs that have ended can be deleted.", icon: "trash", scope: "admin", fits: (run) => run.status !== "running", statuses: ["completed", "failed", "cancelled"] },
];

/** The filters, and that a run is in a status for the action; null if no run can be both. */
export function narrowed(deed: Deed, filters: Filters): Filters | null {
  const status = filters.status ? filters.status.filter((each) => deed.statuses.includes(each)) : [...deed.statuses];
  if (status.length === 0) return null;
  const isHeld = deed.action === "resume" && !filters.paused && !filters.parked;
  return { ...filters, status, ...(isHeld ? { paused: ["true"] } : {}) };
}

/** The request that acts on one run. */
export function requestFor(action: BulkAction, id: string, reason: string): { method: "POST" | "DELETE"; path: string; body?: unknown } {
  if (action === "delete") return { method: "DELETE", path: `/runs/${part(id)}` };
  return { method: "POST", path: `/runs/${part(id)}/${action}`, body: action === "cancel" && reason ? { reason } : {} };
}

async function actOn(action: BulkAction, id: string, reason: string): Promise<void> {
  const { method, path, body } = requestFor(action, id, reason);
  if (method === "DELETE") await api.delete(path);
  else await api.post(path, body);
}

/** How many requests are under way at once. */
const ABREAST = 4;

/** Act on runs one by one, and tell after each how far it is. A refusal of one run does not keep the others from it; without an answer, nothing more is asked. */
export async function actOnEach(action: BulkAction, ids: readonly string[], reason: string, tell: (progress: Bulk) => void, signal: AbortSignal, act = actOn): Promise<void> {
  const progress: Bulk = { action, dry_run: false, matched: ids.length, done: 0, failed: [], sample: [], finished: false };
  const left = [...ids];
  let lost: Error | null = null;
  async function work(): Promise<void> {
    for (let id = left.shift(); id !== undefined && !lost && !signal.aborted; id = left.shift()) {
      try {
        await act(action, id, reason);
        progress.done += 1;
      } catch (thrown) {
        const error = asError(thrown);
        const code = error instanceof ApiError ? error.code : "error";
        if (error instanceof ApiError && (error.status === 0 || error.status === 401)) lost = error;
        progress.failed = [...progress.failed, { run_id: id, code, message: error.message }];
      }
      tell({ ...progress });
    }
  }
  await Promise.all(Array.from({ length: ABREAST }, work));
  if (lost) throw lost;
  tell({ ...progress, finished: true });
}

/** How many have failed: a long list of failures is cut by the server, its count is not. */
export function failures(bulk: Bulk): number {
  return bulk.failed_count ?? bulk.failed.length;
}
