/** What a workflow's graph says: its nodes as a tree of containers, their kinds, their states in a run, and their words. */
import type { Graph, GraphNode, Loop, StepCounts as Counted, Waiter } from "../api/types";
import { count, duration, plural } from "./format";
import type { Tone } from "./status";

export type Kind = "step" | "action" | "container" | "loop" | "event" | "start" | "stop" | "ask" | "answer" | "external" | "resource" | "trigger";

/** A node with what lies in it: blocks are the branches of a container, or its one body. */
export interface Item {
  id: string;
  label: string;
  /** The type of an action in words; empty for steps and events. */
  type: string;
  about: string;
  kind: Kind;
  parent: Item | null;
  depth: number;
  blocks: Block[];
}

export interface Block {
  label: string | null;
  items: Item[];
}

const LOOPS = new Set(["foreach", "until", "while", "dountil"]);
const CONTAINERS = new Set(["scope", "parallel", "if", "switch", "retry", ...LOOPS]);
const WORDS: Record<string, string> = {
  foreach: "for each",
  ai: "AI",
  dountil: "do until",
  parsejson: "parse JSON",
  waitforevent: "wait for event",
  initializevariable: "set up variables",
  setvariable: "set variable",
  incrementvariable: "increment",
  decrementvariable: "decrement",
  appendtoarrayvariable: "append",
  appendtostringvariable: "append",
  delayuntil: "delay until",
  httpwebhook: "webhook",
  apiconnection: "connector",
};

export function typeWords(type: string): string {
  const name = type.toLowerCase();
  return WORDS[name] ?? name.replaceAll("_", " ");
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function kindOf(node: GraphNode, type: string): Kind {
  const lineage = Array.isArray(node.event_types) ? (node.event_types as string[]) : [];
  switch (node.node_type) {
    case "event":
      if (lineage.includes("StopEvent")) return "stop";
      if (lineage.includes("StartEvent")) return "start";
      if (lineage.includes("InputRequiredEvent")) return "ask";
      return lineage.includes("HumanResponseEvent") ? "answer" : "event";
    case "external":
    case "trigger":
      return node.node_type;
    case "resource":
    case "resource_config":
      return "resource";
    case "action":
      return LOOPS.has(type) ? "loop" : CONTAINERS.has(type) ? "container" : "action";
    default:
      return "step";
  }
}

/** Read a graph as a tree. A parent that is missing, or a circle of parents, leaves the node at the top. */
export function treeOf(graph: Graph): { roots: Block; items: Map<string, Item> } {
  const items = new Map<string, Item>();
  for (const node of graph.nodes) {
    const type = text(node.type).toLowerCase();
    const kind = kindOf(node, type);
    const label = kind === "external" ? "outside" : node.label || node.id;
    items.set(node.id, { id: node.id, label, type: kind === "trigger" || type ? typeWords(type) : "", about: text(node.description), kind, parent: null, depth: 0, blocks: [] });
  }
  const roots: Block = { label: null, items: [] };
  for (const node of graph.nodes) {
    const item = items.get(node.id) as Item;
    const parent = node.parent ? items.get(node.parent) : undefined;
    if (!parent || isInside(parent, item)) {
      roots.items.push(item);
      continue;
    }
    const label = text(node.branch) || null;
    let block = parent.blocks.find((each) => each.label === label);
    if (!block) parent.blocks.push((block = { label, items: [] }));
    block.items.push(item);
    item.parent = parent;
  }
  const left: [Block, number][] = [[roots, 0]];
  for (let next = left.pop(); next; next = left.pop()) {
    for (const item of next[0].items) {
      item.depth = next[1];
      if (item.blocks.length && item.kind !== "loop") item.kind = "container";
      for (const block of item.blocks) left.push([block, next[1] + 1]);
    }
  }
  return { roots, items };
}

function isInside(item: Item, outer: Item): boolean {
  for (let each: Item | null = item; each; each = each.parent) if (each === outer) return true;
  return false;
}

/** How many nodes lie in a node, at any depth. */
export function insideOf(item: Item): number {
  let found = 0;
  const left = [...item.blocks];
  for (let block = left.pop(); block; block = left.pop()) {
    found += block.items.length;
    for (const each of block.items) left.push(...each.blocks);
  }
  return found;
}

/** Choose the containers that begin closed: those that would make more than `limit` nodes or more than `depth` levels. */
export function closedAtFirst(roots: Block, limit = 400, depth = 12): Set<string> {
  const closed = new Set<string>();
  let shown = roots.items.length;
  let level = roots.items;
  for (let deep = 1; level.length; deep++) {
    const next: Item[] = [];
    for (const item of level) {
      const inside = item.blocks.reduce((sum, block) => sum + block.items.length, 0);
      if (!inside) continue;
      if (deep > depth || shown + inside > limit) closed.add(item.id);
      else {
        shown += inside;
        for (const block of item.blocks) next.push(...block.items);
      }
    }
    level = next;
  }
  return closed;
}

/** The ids that are in one of two sets only. */
export function differing(one: ReadonlySet<string>, other: Iterable<string>): Set<string> {
  const found = new Set(one);
  for (const id of other) if (!found.delete(id)) found.add(id);
  return found;
}

/** The containers around a node, outermost first. */
export function around(item: Item): Item[] {
  const found: Item[] = [];
  for (let each = item.parent; each; each = each.parent) found.unshift(each);
  return found;
}

// -- States ----------------------------------------------------------------------------------------------------------

/** What became of a step or action. `asleep` are executions in `ctx.sleep`, which the server counts as waiting. */
export type StepCounts = Counted & { asleep?: number };

/** Tell executions that sleep from those that wait for an event or a child: only these have a waiter. */
export function withSleepers(steps: readonly Counted[], waiters: readonly Waiter[]): StepCounts[] {
  return steps.map((step) => {
    const asleep = step.waiting - waiters.filter((waiter) => waiter.step === step.node).length;
    return asleep > 0 ? { ...step, waiting: step.waiting - asleep, asleep } : step;
  });
}

export type NodeState = "executing" | "waiting" | "delayed" | "asleep" | "queued" | "failed" | "completed" | "none";

export const NODE_STATES: Record<NodeState, { label: string; tone: Tone; mark: string }> = {
  executing: { label: "executing", tone: "busy", mark: "▶" },
  waiting: { label: "waiting", tone: "wait", mark: "?" },
  delayed: { label: "retrying", tone: "warn", mark: "↻" },
  asleep: { label: "asleep", tone: "calm", mark: "☾" },
  queued: { label: "queued", tone: "calm", mark: "…" },
  failed: { label: "failed", tone: "bad", mark: "✕" },
  completed: { label: "completed", tone: "ok", mark: "✓" },
  none: { label: "not reached", tone: "calm", mark: "○" },
};

/** What goes on matters more than what has been: the first of these that holds names the node. */
export function nodeState(counts: StepCounts | undefined): NodeState {
  if (!counts) return "none";
  for (const state of ["executing", "waiting", "delayed", "asleep", "queued", "failed", "completed"] as const) if ((counts[state] ?? 0) > 0) return state;
  return "none";
}

/** The word of a state: what is delayed without a failure before it is asleep, not retried. */
export function stateWord(state: NodeState, counts: StepCounts | undefined): string {
  if (state === "delayed" && counts && !counts.retries && (counts.attempt ?? 1) <= 1) return "delayed";
  return NODE_STATES[state].label;
}

export interface Tally {
  state: NodeState;
  value: number;
}

/** Counts to show beside a state: all but a lone one of the state itself. */
export function tallies(counts: StepCounts | undefined): Tally[] {
  if (!counts) return [];
  const found = (["completed", "failed", "executing", "waiting", "delayed", "asleep", "queued"] as const).map((state) => ({ state, value: counts[state] ?? 0 })).filter((tally) => tally.value > 0);
  return found.length === 1 && found[0]?.value === 1 ? [] : found;
}

/** `2/3`: which attempt this is and how many there may be; empty for a first attempt that succeeded or is the only one. */
export function attempts(counts: StepCounts | undefined): string {
  if (!counts?.attempt) return "";
  const state = nodeState(counts);
  const matters = counts.attempt > 1 || state === "delayed" || (state === "executing" && (counts.max_attempts ?? 1) > 1);
  return matters ? `${counts.attempt}${counts.max_attempts ? `/${counts.max_attempts}` : ""}` : "";
}

/** The loop of each action that is a loop: of several rounds of an outer loop the one that goes on, else the last. */
export function loopsByNode(loops: readonly Loop[]): Map<string, Loop> {
  const found = new Map<string, Loop>();
  for (const loop of loops) {
    const known = found.get(loop.name);
    if (!known || known.status !== "running" || loop.status === "running") found.set(loop.name, loop);
  }
  return found;
}

/** `12/60 · 3m left`. */
export function loopBadge(loop: Loop, now: number): string {
  const round = `${count(loop.iteration)}${loop.max_iterations ? `/${count(loop.max_iterations)}` : ""}`;
  const left = timeLeft(loop, now);
  return left === null ? round : `${round} · ${duration(left)} left`;
}

/** Seconds until a loop's time is over, in whole minutes above one; null if it has no limit of time or has ended. */
export function timeLeft(loop: Loop, now: number): number | null {
  if (loop.status !== "running" || !loop.timeout || !loop.start_time) return null;
  const left = Math.max(0, Date.parse(loop.start_time) / 1000 + loop.timeout - now / 1000);
  return left < 60 ? Math.round(left) : left - (left % 60);
}

const KIND_WORDS: Record<Kind, string> = {
  step: "step",
  action: "action",
  container: "group",
  loop: "loop",
  event: "event",
  start: "start event",
  stop: "stop event",
  ask: "question to a person",
  answer: "answer of a person",
  external: "a person or another system",
  resource: "resource",
  trigger: "trigger",
};

export function kindWords(item: Item): string {
  return item.type && item.kind !== "trigger" ? item.type : KIND_WORDS[item.kind];
}

/** The name that a screen reader says: "pack, step, executing, attempt 2 of 3, 12 completed, 1 failed". */
export function nodeName(item: Item, counts: StepCounts | undefined, badge: string, live: boolean): string {
  const parts = [item.label, kindWords(item)];
  if (live && hasState(item.kind)) {
    const state = nodeState(counts);
    parts.push(stateWord(state, counts));
    if (counts && attempts(counts)) parts.push(`attempt ${counts.attempt}${counts.max_attempts ? ` of ${counts.max_attempts}` : ""}`);
    if (counts?.retries) parts.push(counts.retries === 1 ? "1 retry" : `${count(counts.retries)} retries`);
    for (const tally of tallies(counts)) if (tally.state !== state || tally.value > 1) parts.push(`${count(tally.value)} ${stateWord(tally.state, counts)}`);
  }
  if (badge) parts.push(`iteration ${badge.replace("/", " of ")}`);
  if (item.blocks.length) parts.push(`${plural(insideOf(item), "action")} inside`);
  return parts.join(", ");
}

/** Whether nodes of a kind are executed, and so have a state in a run. */
export function hasState(kind: Kind): boolean {
  return kind === "step" || kind === "action" || kind === "container" || kind === "loop";
}

/** The nodes that a run has reached. Events count as reached once a step that takes them has been; the end, once the run has completed. */
export function reachedNodes(graph: Graph, counts: ReadonlyMap<string, StepCounts>, completed = true): Set<string> {
  const reached = new Set<string>();
  for (const [id, each] of counts) if (nodeState(each) !== "none") reached.add(id);
  const executed = new Set(graph.nodes.filter((node) => node.node_type === "step" || node.node_type === "action").map((node) => node.id));
  const ends = new Set(graph.nodes.filter((node) => kindOf(node, text(node.type).toLowerCase()) === "stop").map((node) => node.id));
  const outs = new Map<string, number>();
  for (const { source } of graph.edges) outs.set(source, (outs.get(source) ?? 0) + 1);
  const found: string[] = [];
  for (const { source, target } of graph.edges) {
    if (!executed.has(source) && reached.has(target)) found.push(source);
    // What is outside is reached when it was asked, and the end when nothing else can have come of a step.
    if (executed.has(source) && !executed.has(target) && (completed || !ends.has(target)) && (counts.get(source)?.completed ?? 0) > 0 && outs.get(source) === 1) found.push(target);
  }
  for (const id of found) reached.add(id);
  return reached;
}

/** What a layout depends on: two graphs with one key are drawn alike. */
export function graphKey(graph: Graph): string {
  return JSON.stringify([graph.nodes.map((node) => [node.id, node.label, node.node_type, node.type, node.parent, node.branch]), graph.edges.map((edge) => [edge.source, edge.target, edge.label])]);
}
