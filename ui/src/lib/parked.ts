/** Runs that cannot go on, put together by what keeps them. */
import type { Run } from "../api/types";

export interface Reason {
  /** The reason without what differs from run to run. */
  text: string;
  workflow: string;
  runs: Run[];
}

/** Take ids, numbers and long values out of a sentence, so that runs that are held alike fall together. Names in quotes stay. */
export function generalized(sentence: string, runId: string): string {
  const id = runId.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return (runId ? sentence.replace(new RegExp(`(?<![\\w.:~-])${id}(?![\\w:~-])`, "g"), "…") : sentence)
    .replace(/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi, "…")
    .replace(/\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b/gi, "…")
    .replace(/(?<![\w.])\d[\d,.]*\d\b|(?<![\w.])\d\b/g, "…");
}

/** Group runs by workflow and reason; the largest group first. */
export function byReason(runs: readonly Run[], reasonOf: (run: Run) => string | null): Reason[] {
  const found = new Map<string, Reason>();
  for (const run of runs) {
    const text = generalized(reasonOf(run) ?? "", run.run_id);
    const key = JSON.stringify([run.workflow, text]);
    const reason = found.get(key) ?? { text, workflow: run.workflow, runs: [] };
    reason.runs.push(run);
    found.set(key, reason);
  }
  return [...found.values()].sort((a, b) => b.runs.length - a.runs.length || a.workflow.localeCompare(b.workflow));
}
