import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { mergeRows, openFeed } from "../src/api/live";

class Source extends EventTarget {
  static readonly CLOSED = 2;
  static made: Source[] = [];
  readyState = 1;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;

  constructor(readonly address: string) {
    super();
    Source.made.push(this);
  }

  tell(event: string, id: string, data: unknown): void {
    this.dispatchEvent(new MessageEvent(event, { data: JSON.stringify(data), lastEventId: id }));
  }

  refuse(): void {
    this.readyState = Source.CLOSED;
    this.onerror?.();
  }

  close(): void {
    this.readyState = Source.CLOSED;
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  Source.made = [];
  vi.stubGlobal("EventSource", Source);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a feed takes the messages of /v1/changes by their names", () => {
  const told: unknown[] = [];
  const take = (name: string) => (data: unknown, id: string) => told.push([name, data, id]);
  openFeed("/changes", {}, { on: { run: take("run"), gone: take("gone"), counts: take("counts"), reset: take("reset") } });
  const source = Source.made[0] as Source;
  source.tell("counts", "c1", { total: 1 });
  source.tell("run", "c1", { run_id: "a" });
  source.tell("gone", "c2", { run_id: "b" });
  source.tell("reset", "c3", {});
  expect(told).toEqual([
    ["counts", { total: 1 }, "c1"],
    ["run", { run_id: "a" }, "c1"],
    ["gone", { run_id: "b" }, "c2"],
    ["reset", {}, "c3"],
  ]);
});

test("a feed that was refused goes on after the last message", () => {
  openFeed("/changes", { status: "running" }, { on: { run: () => undefined } });
  const first = Source.made[0] as Source;
  expect(first.address).toBe("../v1/changes?status=running");
  first.tell("run", "c1", { run_id: "a" });
  first.refuse();
  vi.advanceTimersByTime(5_000);
  expect((Source.made[1] as Source).address).toBe("../v1/changes?status=running&after=c1");
  (Source.made[1] as Source).refuse();
  vi.advanceTimersByTime(10_000);
  expect((Source.made[2] as Source).address).toBe("../v1/changes?status=running&after=c1");
});

test("a closed feed is not opened again", () => {
  const feed = openFeed("/changes", {}, { on: {} });
  feed.close();
  (Source.made[0] as Source).refuse();
  vi.advanceTimersByTime(60_000);
  expect(Source.made).toHaveLength(1);
});

test("an older state of a run does not replace a newer one", () => {
  const row = (run_id: string, tick: number) => ({ run_id, tick, updated_at: "" });
  const merged = mergeRows([row("a", 5), row("b", 1)], new Map([["a", row("a", 4)], ["c", row("c", 0)]]), new Set(["b"]), () => true);
  expect(merged).toEqual({ rows: [row("c", 0), row("a", 5)], added: 1 });
});
