/** The API's types by their names. Those of the document are generated; see `npm run types`. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

export interface Session {
  required: boolean;
  authenticated: boolean;
  name: string | null;
  scopes: string[];
  workflows: string[] | null;
  csrf: string | null;
  read_only: boolean;
  version: string | null;
  server_time: string | null;
}

export type JsonSchema = { [key: string]: unknown };

export type Waiter = Omit<Schemas["Waiter"], "schema" | "requirements"> & { schema: JsonSchema | null; requirements: { [name: string]: unknown } };
export type Run = Omit<Schemas["Run"], "active_waiters"> & { active_waiters: Waiter[] | null };
export type State = Omit<Schemas["State"], "active_waiters" | "timers"> & { active_waiters: Waiter[]; timers: Timer[] };
export type Timer = Schemas["TimerState"] & { skippable?: boolean };
export type Why = Schemas["Why"];
export type Cause = Schemas["Cause"];
export type Loop = Schemas["Loop"];
export type Action = Schemas["Action"];
export type HistoryItem = Schemas["HistoryItem"];
export type Replay = Schemas["Replay"];
export type StreamEvent = Schemas["StreamEntry"];
export type Delivery = Schemas["Delivery"];
export type Definition = Schemas["Definition"];
export type DefinitionSchemas = Schemas["DefinitionSchemas"];
export type DefinitionVersion = Schemas["DefinitionVersion"];
export type Schedule = Schemas["Schedule"];
export type FailedAttempt = Schemas["FailedAttempt"];

export interface GraphNode {
  id: string;
  label?: string;
  node_type?: string;
  parent?: string | null;
  [key: string]: unknown;
}
export interface GraphEdge {
  source: string;
  target: string;
  label?: string | null;
  [key: string]: unknown;
}
export interface Graph {
  name: string;
  nodes: GraphNode[];
  edges: GraphEdge[];
}
export interface StepCounts {
  node: string;
  executing: number;
  waiting: number;
  queued: number;
  delayed: number;
  completed: number;
  failed: number;
  retries: number;
  last_at: string | null;
  attempt: number | null;
  max_attempts: number | null;
}
export interface RunGraph extends Graph {
  steps: StepCounts[];
  loops: Loop[];
  tick: number;
  partial?: boolean;
}

export interface Bar {
  begin: string;
  end: string | null;
  kind: "work" | "wait" | "delay" | "queue";
  attempt: number;
  status: "ok" | "failed" | "running" | "cancelled";
  tick: number;
  iteration: number | null;
  error: string | null;
}
export interface Density {
  begin: string;
  end: string;
  work: number;
  wait: number;
  failed: number;
}
export interface Lane {
  name: string;
  kind: "step" | "action" | "loop";
  total: number;
  failed: number;
  retries: number;
  waits: number;
  bars: Bar[] | null;
  density: Density[] | null;
}
export interface Timeline {
  begin: string;
  end: string;
  tick: number;
  partial: boolean;
  lanes: Lane[];
}

/** One round of a loop, whatever its type. */
export interface Iteration {
  iteration: number;
  status: "running" | "complete" | "failed" | "cancelled";
  condition_result: boolean | null;
  result: unknown;
  error: string | null;
  begin: string | null;
  end: string | null;
  duration: number | null;
  tick: number | null;
}

export type Counts = Schemas["Counts"];
export type WorkflowCounts = Schemas["WorkflowCounts"];
export type Worker = Schemas["Worker"];

export type BulkAction = "cancel" | "retry" | "resume" | "pause" | "delete";
export interface Bulk {
  action: BulkAction;
  dry_run: boolean;
  matched: number;
  done: number;
  failed: { run_id: string; code: string; message: string }[];
  failed_count?: number;
  sample: string[];
  finished: boolean;
}
