import { describe, expect, it } from "vitest";
import type { Graph, Loop, StepCounts, Waiter } from "../src/api/types";
import { attempts, closedAtFirst, graphKey, insideOf, loopBadge, loopsByNode, nodeName, nodeState, reachedNodes, stateWord, tallies, treeOf, withSleepers } from "../src/lib/graph";
import { estimate, fitted, layoutGraph, type Layout, type Placed } from "../src/lib/graphLayout";
import { rounded } from "../src/lib/graphRoutes";
import { neighbor, opening, shown, whole, zoomed } from "../src/lib/viewport";

/** Milliseconds that a large layout may take on a busy machine. */
const PATIENCE = 60_000;

const action = (id: string, more: object = {}) => ({ id, label: id, node_type: "action", type: "compose", ...more });

const REFUND: Graph = {
  name: "refund",
  nodes: [
    { id: "trigger:manual", label: "manual", node_type: "trigger", type: "request" },
    action("isLarge", { type: "if" }),
    action("ask", { type: "waitforevent", parent: "isLarge", branch: "true" }),
    action("small", { parent: "isLarge", branch: "false" }),
    action("pay"),
  ],
  edges: [
    { source: "trigger:manual", target: "isLarge" },
    { source: "isLarge", target: "pay", label: "Succeeded, Failed, Skipped, TimedOut" },
  ],
};

function counts(node: string, more: Partial<StepCounts>): StepCounts {
  return { node, executing: 0, waiting: 0, queued: 0, delayed: 0, completed: 0, failed: 0, retries: 0, last_at: null, attempt: null, max_attempts: null, ...more };
}

function loop(more: Partial<Loop>): Loop {
  return { name: "until", path: "until[1]", type: "until", status: "running", condition: null, condition_result: null, iteration: 12, max_iterations: 60, timeout: 3600, start_time: "2026-01-01T00:00:00Z", duration: null, last_result: null, next_iteration_at: null, parent: null, ...more };
}

function laid(graph: Graph, closed: ReadonlySet<string> = new Set()): Layout {
  const { roots, items } = treeOf(graph);
  return layoutGraph(roots, items, graph.edges, closed);
}

function place(layout: Layout, id: string): Placed {
  const found = layout.nodes.find((each) => each.item.id === id);
  if (!found) throw new Error(`${id} has no place`);
  return found;
}

function chain(length: number): Graph {
  const ids = Array.from({ length }, (_, index) => `a${index}`);
  return { name: "chain", nodes: ids.map((id) => action(id)), edges: ids.slice(1).map((id, index) => ({ source: `a${index}`, target: id })) };
}

/** Every pair of nodes must lie apart, but for a container and what is in it. */
function overlaps(layout: Layout): string[] {
  const found: string[] = [];
  const inside = (inner: Placed, outer: Placed): boolean => {
    for (let each = inner.item.parent; each; each = each.parent) if (each === outer.item) return true;
    return false;
  };
  for (const a of layout.nodes) {
    for (const b of layout.nodes) {
      if (a === b || inside(b, a)) {
        if (a !== b && !(b.x >= a.x && b.y >= a.y && b.x + b.w <= a.x + a.w && b.y + b.h <= a.y + a.h)) found.push(`${b.item.id} leaves ${a.item.id}`);
        continue;
      }
      if (inside(a, b)) continue;
      if (a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h) found.push(`${a.item.id} over ${b.item.id}`);
    }
  }
  return found;
}

describe("steps that sleep", () => {
  it("are those that wait without a waiter", () => {
    const waits = { step: "ask" } as Waiter;
    const [ask, nap, both] = withSleepers([counts("ask", { waiting: 1 }), counts("nap", { waiting: 1 }), counts("both", { waiting: 3 })], [waits, { step: "both" } as Waiter]);
    expect([nodeState(ask), nodeState(nap), stateWord(nodeState(nap), nap)]).toEqual(["waiting", "asleep", "asleep"]);
    expect(tallies(both).map(({ state, value }) => [state, value])).toEqual([["waiting", 1], ["asleep", 2]]);
  });

  it("are none where a step has more waiters than executions", () => {
    const gathers = { step: "ask" } as Waiter;
    expect(withSleepers([counts("ask", { waiting: 1 })], [gathers, gathers])).toEqual([counts("ask", { waiting: 1 })]);
  });
});

describe("the tree of a graph", () => {
  it("puts actions into their containers by branch", () => {
    const { roots, items } = treeOf(REFUND);
    expect(roots.items.map((item) => item.id)).toEqual(["trigger:manual", "isLarge", "pay"]);
    expect(items.get("isLarge")?.blocks.map((block) => [block.label, block.items.map((item) => item.id)])).toEqual([
      ["true", ["ask"]],
      ["false", ["small"]],
    ]);
    expect(items.get("ask")?.depth).toBe(1);
    expect(items.get("isLarge")?.kind).toBe("container");
  });

  it("survives parents that are missing or go in a circle", () => {
    const graph: Graph = { name: "odd", nodes: [action("a", { parent: "b" }), action("b", { parent: "a" }), action("c", { parent: "none" }), action("d", { parent: "d" })], edges: [] };
    const { roots } = treeOf(graph);
    expect(roots.items.map((item) => item.id).toSorted()).toEqual(["b", "c", "d"]);
  });

  it("names the kinds of events", () => {
    const event = (id: string, ...event_types: string[]) => ({ id, label: id, node_type: "event", event_types });
    const { items } = treeOf({ name: "k", nodes: [event("a", "Order", "StartEvent"), event("b", "StopEvent"), event("c", "Q", "InputRequiredEvent"), event("d", "A", "HumanResponseEvent"), event("e", "E")], edges: [] });
    expect([...items.values()].map((item) => item.kind)).toEqual(["start", "stop", "ask", "answer", "event"]);
  });

  it("closes what would make too many nodes, and opens the outer containers first", () => {
    const nodes = [action("outer", { type: "scope" }), ...Array.from({ length: 10 }, (_, index) => action(`in${index}`, { type: "scope", parent: "outer" }))];
    for (let index = 0; index < 10; index++) for (let each = 0; each < 50; each++) nodes.push(action(`in${index}.${each}`, { parent: `in${index}` }));
    const { roots } = treeOf({ name: "big", nodes, edges: [] });
    const closed = closedAtFirst(roots, 200);
    expect(closed.has("outer")).toBe(false);
    expect([...closed]).toHaveLength(7);
    expect(insideOf(roots.items[0]!)).toBe(510);
  });
});

describe("states of nodes", () => {
  it("prefers what goes on to what has been", () => {
    expect(nodeState(counts("a", { completed: 12, failed: 1, executing: 2 }))).toBe("executing");
    expect(nodeState(counts("a", { completed: 12, failed: 1 }))).toBe("failed");
    expect(nodeState(counts("a", {}))).toBe("none");
    expect(nodeState(undefined)).toBe("none");
  });

  it("tells a delay from a retry", () => {
    expect(stateWord("delayed", counts("a", { delayed: 1, attempt: 2, retries: 1 }))).toBe("retrying");
    expect(stateWord("delayed", counts("a", { delayed: 1 }))).toBe("delayed");
  });

  it("counts more than one, and one of several states", () => {
    expect(tallies(counts("a", { completed: 1 }))).toEqual([]);
    expect(tallies(counts("a", { completed: 12, failed: 1, executing: 2 })).map((each) => [each.state, each.value])).toEqual([["completed", 12], ["failed", 1], ["executing", 2]]);
  });

  it("shows attempts when they matter", () => {
    expect(attempts(counts("a", { completed: 1, attempt: 1, max_attempts: 3 }))).toBe("");
    expect(attempts(counts("a", { delayed: 1, attempt: 2, max_attempts: 3 }))).toBe("2/3");
    expect(attempts(counts("a", { executing: 1, attempt: 2 }))).toBe("2");
  });

  it("names a node for screen readers", () => {
    const { items } = treeOf({ name: "s", nodes: [{ id: "pack", label: "pack", node_type: "step" }], edges: [] });
    expect(nodeName(items.get("pack")!, counts("pack", { executing: 1, attempt: 2, max_attempts: 3 }), "", true)).toBe("pack, step, executing, attempt 2 of 3");
    expect(nodeName(items.get("pack")!, undefined, "", false)).toBe("pack, step");
  });

  it("writes the badge of a loop", () => {
    const now = Date.parse("2026-01-01T00:57:00Z");
    expect(loopBadge(loop({}), now)).toBe("12/60 · 3m left");
    expect(loopBadge(loop({ status: "complete" }), now)).toBe("12/60");
    expect(loopBadge(loop({ timeout: null, max_iterations: null }), now)).toBe("12");
  });

  it("takes the round of a loop that goes on", () => {
    const found = loopsByNode([loop({ path: "a[1]/until", status: "complete" }), loop({ path: "a[2]/until" }), loop({ path: "a[0]/until", status: "complete" })]);
    expect(found.get("until")?.path).toBe("a[2]/until");
  });

  it("follows what was reached to the events between", () => {
    const step = (id: string) => ({ id, label: id, node_type: "step" });
    const event = (id: string) => ({ id, label: id, node_type: "event" });
    const graph: Graph = { name: "g", nodes: [event("Start"), step("a"), event("X"), step("b"), event("Stop")], edges: [{ source: "Start", target: "a" }, { source: "a", target: "X" }, { source: "X", target: "b" }, { source: "b", target: "Stop" }] };
    expect(reachedNodes(graph, new Map([["a", counts("a", { completed: 1 })]]))).toEqual(new Set(["a", "Start", "X"]));
  });

  it("reaches the end when the run has, not when its last step returned nothing", () => {
    const graph: Graph = { name: "g", nodes: [{ id: "a", label: "a", node_type: "step" }, { id: "Stop", label: "Stop", node_type: "event", event_types: ["Stop", "StopEvent"] }], edges: [{ source: "a", target: "Stop" }] };
    const found = new Map([["a", counts("a", { completed: 1 })]]);
    expect(reachedNodes(graph, found, false)).toEqual(new Set(["a"]));
    expect(reachedNodes(graph, found, true)).toEqual(new Set(["a", "Stop"]));
  });
});

describe("the layout", () => {
  it("draws branches side by side in their container", () => {
    const layout = laid(REFUND);
    expect(layout.branches.map((each) => each.label)).toEqual(["true", "false"]);
    expect(overlaps(layout)).toEqual([]);
    expect(place(layout, "pay").y).toBeGreaterThan(place(layout, "isLarge").y + place(layout, "isLarge").h);
    expect(layout.lines.find((line) => line.targets[0] === "pay")?.label?.text).toBe("always");
  });

  it("draws a closed container as one node, with the lines of what it holds", () => {
    const layout = laid({ ...REFUND, edges: [...REFUND.edges, { source: "ask", target: "pay" }] }, new Set(["isLarge"]));
    expect(layout.nodes.map((each) => each.item.id)).toEqual(["trigger:manual", "isLarge", "pay"]);
    expect(layout.lines.map((line) => [...line.sources, ...line.targets])).toContainEqual(["isLarge", "pay"]);
  });

  it("leads a line back beside the nodes", () => {
    const graph: Graph = { name: "c", nodes: ["a", "b", "c"].map((id) => ({ id, label: id, node_type: "step" })), edges: [{ source: "a", target: "b" }, { source: "b", target: "c" }, { source: "c", target: "a" }, { source: "b", target: "b" }] };
    const layout = laid(graph);
    expect(layout.lines.filter((line) => line.kind === "back").map((line) => line.sources[0]).toSorted()).toEqual(["b", "c"]);
    expect(overlaps(layout)).toEqual([]);
  });

  it("draws many nodes between the same two as a grid with one line in and one out", () => {
    const calls = Array.from({ length: 14 }, (_, index) => `call${index}`);
    const layout = laid({ name: "f", nodes: [action("a"), ...calls.map((id) => action(id)), action("z")], edges: calls.flatMap((id) => [{ source: "a", target: id }, { source: id, target: "z" }]) });
    expect(layout.lines).toHaveLength(2);
    expect(layout.lines[0]?.targets).toEqual(calls);
    expect(layout.branches[0]?.label).toBe("14 in parallel");
    expect(overlaps(layout)).toEqual([]);
    expect(layout.width).toBeLessThan(1000);
  });

  it("keeps the order of the document from left to right", () => {
    const layout = laid({ name: "o", nodes: ["a", "b", "c", "d"].map((id) => action(id)), edges: ["b", "c", "d"].map((target) => ({ source: "a", target })) });
    expect(place(layout, "b").x).toBeLessThan(place(layout, "c").x);
    expect(place(layout, "c").x).toBeLessThan(place(layout, "d").x);
  });

  it("writes equal labels of lines to one node once, and others side by side", () => {
    const nodes = ["a", "b", "c", "d"].map((id) => action(id));
    const layout = laid({ name: "m", nodes, edges: [{ source: "a", target: "c", label: "Failed" }, { source: "b", target: "c", label: "Failed" }, { source: "a", target: "d", label: "Skipped" }, { source: "b", target: "d" }] });
    const labels = layout.lines.flatMap((line) => (line.label ? [line.label] : []));
    for (const one of labels) for (const other of labels) if (one !== other && Math.abs(one.y - other.y) < 16) expect(Math.abs(one.x - other.x)).toBeGreaterThanOrEqual((one.w + other.w) / 2 - 1);
  });

  it("draws a loop's way round, and loops in loops", () => {
    const layout = laid({ name: "l", nodes: [action("rooms", { type: "foreach" }), action("shelves", { type: "foreach", parent: "rooms" }), action("count", { parent: "shelves" }), action("sum", { parent: "rooms" })], edges: [{ source: "shelves", target: "sum" }] });
    expect(layout.lines.filter((line) => line.kind === "round").map((line) => line.sources[0]).toSorted()).toEqual(["rooms", "shelves"]);
    expect(overlaps(layout)).toEqual([]);
  });

  it("keeps everything apart in graphs that chance has made", () => {
    let seed = 7;
    const chance = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let round = 0; round < 6; round++) {
      const nodes: Graph["nodes"] = [];
      const edges: Graph["edges"] = [];
      const scopes: (string | null)[] = [null];
      const last = new Map<string | null, string[]>();
      for (let index = 0; index < 40; index++) {
        const parent = scopes[Math.floor(chance() * scopes.length)] ?? null;
        const id = `n${index}`;
        const holds = chance() < 0.2;
        nodes.push(action(id, { parent, type: holds ? (chance() < 0.5 ? "until" : "scope") : "compose" }));
        if (holds) scopes.push(id);
        const before = last.get(parent) ?? [];
        for (let tries = 0; tries < 2; tries++) if (before.length && chance() < 0.7) edges.push({ source: before[Math.floor(chance() * before.length)]!, target: id, label: chance() < 0.2 ? "Failed" : null });
        last.set(parent, [...before, id]);
      }
      const layout = laid({ name: "r", nodes, edges });
      expect(layout.nodes).toHaveLength(40);
      expect(overlaps(layout)).toEqual([]);
      expect(layout.nodes.filter((each) => each.x < 0 || each.x + each.w > layout.width + 0.5 || each.y + each.h > layout.height + 0.5)).toEqual([]);
    }
  }, PATIENCE);

  it("draws long chains and large flat graphs", () => {
    const long = laid(chain(1000));
    expect(long.nodes).toHaveLength(1000);
    expect(new Set(long.nodes.map((each) => each.x)).size).toBe(1);
    const wide = laid({ name: "w", nodes: Array.from({ length: 1000 }, (_, index) => action(`a${index}`)), edges: [] });
    expect(wide.width / wide.height).toBeLessThan(4);
    const tree = chain(900);
    const bushy = laid({ ...tree, edges: tree.nodes.slice(1).map((node, index) => ({ source: `a${Math.floor(index / 4)}`, target: node.id })) });
    expect(overlaps(bushy)).toEqual([]);
  }, PATIENCE);

  it("has one key for graphs that are drawn alike", () => {
    expect(graphKey(REFUND)).toBe(graphKey(structuredClone(REFUND)));
    expect(graphKey({ ...REFUND, edges: [] })).not.toBe(graphKey(REFUND));
  });
});

describe("lines and texts", () => {
  it("rounds corners, and never more than half of a part", () => {
    expect(rounded([[0, 0], [0, 20], [30, 20]])).toBe("M0 0L0 12Q0 20 8 20L30 20");
    expect(rounded([[0, 0], [0, 4], [30, 4]])).toBe("M0 0L0 2Q0 4 2 4L30 4");
  });

  it("cuts texts to a width", () => {
    const cut = fitted("aVeryLongNameOfAnAction", 80, 13, 600, estimate);
    expect(cut.endsWith("…")).toBe(true);
    expect(estimate(cut, 13)).toBeLessThanOrEqual(80);
    expect(fitted("short", 80, 13, 600, estimate)).toBe("short");
  });
});

describe("the viewport", () => {
  it("zooms around a point", () => {
    const view = zoomed({ x: 10, y: 20, k: 1 }, 2, { x: 50, y: 60 });
    expect(view).toEqual({ k: 2, x: -30, y: -20 });
    expect(zoomed({ x: 0, y: 0, k: 1 }, 1000, { x: 0, y: 0 }).k).toBe(2.5);
  });

  it("shows all, and opens at what matters", () => {
    expect(whole({ w: 1000, h: 500 }, { w: 500, h: 500 })).toEqual({ k: 0.5, x: 0, y: 125 });
    expect(opening({ w: 200, h: 5000 }, { w: 400, h: 500 }, { x: 100, y: 3000 })).toEqual({ k: 1, x: 100, y: -2800 });
    expect(opening({ w: 200, h: 5000 }, { w: 400, h: 500 }, null).y).toBe(0);
    expect(opening({ w: 200, h: 600 }, { w: 400, h: 480 }, null)).toEqual({ k: 0.8, x: 120, y: 0 });
  });

  it("moves no more than needed", () => {
    expect(shown({ x: 0, y: 0, k: 1 }, { x: 100, y: 100, w: 50, h: 50 }, { w: 500, h: 500 })).toEqual({ x: 0, y: 0, k: 1 });
    expect(shown({ x: 0, y: 0, k: 1 }, { x: 100, y: 600, w: 50, h: 50 }, { w: 500, h: 500 }).y).toBe(-174);
  });

  it("finds the neighbor straight ahead", () => {
    const box = (x: number, y: number) => ({ x, y, w: 10, h: 10 });
    const [from, below, aside] = [box(0, 0), box(0, 60), box(80, 40)];
    expect(neighbor([from, below, aside], from, "down")).toBe(below);
    expect(neighbor([from, below, aside], from, "right")).toBe(aside);
    expect(neighbor([from, below, aside], from, "up")).toBe(null);
  });
});
