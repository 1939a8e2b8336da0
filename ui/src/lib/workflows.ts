/** What is known of workflows: who works for them, and how their runs end. */
import type { Counts, Definition, Worker, WorkflowCounts } from "../api/types";
import type { Tone } from "./status";

export interface Serving {
  label: string;
  tone: Tone;
  about: string;
}

/** Say who works for a workflow. `here` is whether this server does; null if that is not known. */
export function servingOf(name: string, here: boolean | null, workers: readonly Worker[] | null): Serving {
  const own = here ?? workers?.some((worker) => worker.is_this && worker.workflows?.includes(name)) ?? false;
  if (own) return { label: "served", tone: "ok", about: "This server works for it." };
  const others = (workers ?? []).filter((worker) => worker.alive && worker.workflows?.includes(name));
  if (others.length) return { label: "served", tone: "ok", about: `Another process works for it: ${others.map((worker) => worker.name).join(", ")}.` };
  if (workers === null || workers.some((worker) => worker.alive && worker.workflows === null && !worker.is_this)) {
    return { label: "not known", tone: "calm", about: "This server does not work for it; what other workers have is not known." };
  }
  return { label: "no worker", tone: "warn", about: "No process works for it now: its runs wait until one does." };
}

export interface WorkflowRow {
  name: string;
  definition: Definition | null;
  counts: WorkflowCounts | null;
}

/** The counts of a workflow: zeros if it has no runs, null if this store does not count by workflow. */
export function countsOf(name: string, counts: Counts | null): WorkflowCounts | null {
  if (!counts?.workflows) return null;
  const found = counts.workflows.find((each) => each.workflow === name);
  if (found) return found;
  if (counts.workflows.length === 0 && counts.total !== 0) return null;
  return { workflow: name, total: 0, running: 0, completed: 0, failed: 0, cancelled: 0, idle: 0, asleep: 0, waiting: 0, paused: 0, parked: 0, stuck: 0 };
}

/** Put definitions and counts together by name: runs may be left of a workflow whose code nobody has. */
export function workflowRows(definitions: readonly Definition[], counts: Counts | null): WorkflowRow[] {
  const byName = new Map<string, WorkflowRow>();
  for (const definition of definitions) byName.set(definition.name, { name: definition.name, definition, counts: countsOf(definition.name, counts) });
  for (const each of counts?.workflows ?? []) byName.set(each.workflow, { name: each.workflow, definition: byName.get(each.workflow)?.definition ?? null, counts: each });
  return [...byName.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** The share of ended runs that failed; null if none has ended. */
export function errorRate(counts: Pick<WorkflowCounts, "completed" | "failed" | "cancelled"> | null): number | null {
  if (!counts) return null;
  const ended = (counts.completed ?? 0) + (counts.failed ?? 0) + (counts.cancelled ?? 0);
  return ended ? (counts.failed ?? 0) / ended : null;
}

export function percent(share: number | null): string {
  if (share === null) return "–";
  const value = share * 100;
  return value > 0 && value < 0.1 ? "< 0.1 %" : `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} %`;
}

/** Read tags as people write them: one `name=value` per line. */
export function parseTags(text: string): { tags: Record<string, string>; problem: string | null } {
  const tags: Record<string, string> = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const cut = line.indexOf("=");
    if (cut < 1) return { tags, problem: `“${line}” is no tag: write name=value.` };
    tags[line.slice(0, cut).trim()] = line.slice(cut + 1).trim();
  }
  return { tags, problem: null };
}
