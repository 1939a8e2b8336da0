import { describe, expect, it } from "vitest";
import type { HistoryItem, Run, StreamEvent, Why } from "../src/api/types";
import { loopPath, plainPath } from "../src/lib/loops";
import { actionsOf } from "../src/lib/runActions";
import { isInternal, supersededIn } from "../src/lib/runEvents";
import { stateChanges } from "../src/lib/stateDiff";
import { liveSentence, withoutError } from "../src/lib/whyText";
import { beginningOf, describeTick, failureOf, failuresIn, mergeTicks, readTraceback, TICK_TYPES, tickType } from "../src/lib/ticks";

const AT = "2026-01-01T00:00:00.000Z";
const item = (seq: number, tick: Record<string, unknown>): HistoryItem => ({ seq, at: AT, tick: tick as HistoryItem["tick"] });

describe("ticks", () => {
  it("are said in words, unknown ones by their names", () => {
    expect(describeTick(item(0, { type: "TickAddEvent", event: { type: "shop.Answer" }, step: "pack" }))).toBe("Answer comes in for pack");
    expect(describeTick(item(0, { type: "TickStepResult", step: "plan", returned: [{ type: "a.Item" }, { type: "a.Item" }] }))).toBe("plan returned 2 × Item");
    expect(describeTick(item(0, { type: "TickStepResult", step: "plan", returned: [] }))).toBe("plan returned nothing");
    expect(describeTick(item(0, { type: "TickEditStore", changed: { "a.b": 1 }, removed: ["c"], source: { step: "s" } }))).toBe("s changed a.b, c");
    expect(describeTick(item(0, { type: "TickSomethingNew" }))).toBe("Something New");
    for (const [type] of TICK_TYPES) expect(describeTick(item(0, { type }))).not.toBe("");
  });

  it("survive fields of another shape", () => {
    expect(describeTick(item(0, { type: "TickStepResult", step: 7, returned: "x", failure: null }))).toContain("returned nothing");
    expect(failureOf(item(0, { type: "TickStepResult", failure: "?" }))).toMatchObject({ message: "", attempt: null });
  });

  it("merge in order, the newer of two with one number", () => {
    const merged = mergeTicks([item(1, { type: "a" }), item(2, { type: "b" })], [item(2, { type: "c" }), item(0, { type: "d" })]);
    expect(merged.map((each) => [each.seq, tickType(each)])).toEqual([[0, "d"], [1, "a"], [2, "c"]]);
  });
});

describe("failed attempts", () => {
  it("are found in results, with their number and what follows", () => {
    const failure = { type: "builtins.OSError", message: "no", body: null, traceback: "OSError: no" };
    const found = failuresIn([item(3, { type: "TickStepResult", step: "a", failure, attempt: 2, max_attempts: 3, retry_delay_s: 60 }), item(4, { type: "TickTimerFired", timer: 1 })]);
    expect(found).toEqual([{ tick: 3, at: AT, step: "a", type: "OSError", message: "no", traceback: "OSError: no", attempt: 2, max: 3, nextAt: "2026-01-01T00:01:00.000Z" }]);
  });

  it("know no end where the policy names none", () => {
    const found = failureOf(item(1, { type: "TickStepResult", step: "a", failure: { type: "E", message: "m" }, attempt: 1, max_attempts: 0, retry_delay_s: null }));
    expect(found).toMatchObject({ max: null, nextAt: null, traceback: null });
  });

  it("are found in outcomes of actions", () => {
    const outcome = (status: string) => item(1, { type: "TickStepResult", step: "get", returned: [{ type: "loom.flows.ActionOutcome", fields: { status, code: "Http", message: "404", error_type: "", traceback: "" } }] });
    expect(failureOf(outcome("Failed"))).toMatchObject({ step: "get", type: "Http", message: "404" });
    expect(failureOf(outcome("Succeeded"))).toBeNull();
  });
});

describe("tracebacks", () => {
  it("split into frames with their code", () => {
    const read = readTraceback('E: no\n  File "/a/b.py", line 3, in f\n    g(1)\n      + 2\n  File "/lib/x.py", line 9, in g\n    raise E');
    expect(read.headline).toBe("E: no");
    expect(read.frames).toEqual([{ place: 'File "/a/b.py", line 3, in f', code: "g(1)\n  + 2" }, { place: 'File "/lib/x.py", line 9, in g', code: "raise E" }]);
    expect(readTraceback("E: no").frames).toEqual([]);
  });
});

describe("the beginning of a run", () => {
  it("is the start event of a workflow, and the body of a flow's trigger", () => {
    expect(beginningOf(item(0, { type: "TickStartRun", event: { type: "shop.Placed", fields: { a: 1 } } }))).toMatchObject({ input: { a: 1 }, isFlow: false });
    const flow = item(0, { type: "TickStartRun", event: { type: "loom.flows.FlowStart", fields: { body: { x: 1 }, parameters: { p: 2 }, variables: {} } } });
    expect(beginningOf(flow)).toMatchObject({ input: { x: 1 }, parameters: { p: 2 }, isFlow: true });
    expect(beginningOf(undefined)).toBeNull();
    expect(beginningOf(item(5, { type: "TickTimerFired" }))).toBeNull();
  });
});

describe("changes of a state", () => {
  it("name what was added, removed and changed", () => {
    const before = { tick: 1, at: "a", store: { a: 1, gone: true }, steps: [{ step: "x", executing: 1 }] };
    const after = { tick: 2, at: "b", store: { a: 2, fresh: [1] }, steps: [{ step: "w", executing: 0 }, { step: "x", executing: 0 }] };
    expect(stateChanges(before, after).map((each) => [each.path, each.kind])).toEqual([
      ["store.a", "changed"],
      ["store.gone", "removed"],
      ["store.fresh", "added"],
      ["steps.x.executing", "changed"],
      ["steps.w", "added"],
    ]);
    expect(stateChanges(before, { ...before, tick: 9 })).toEqual([]);
  });

  it("compare lists whose elements share a name by place, and stop at 200", () => {
    const list = [{ step: "a", n: 1 }, { step: "a", n: 2 }];
    expect(stateChanges({ timers: list }, { timers: [list[0], { step: "a", n: 3 }] })).toEqual([{ path: "timers.1.n", kind: "changed", before: 2, after: 3 }]);
    const many = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`k${index}`, index]));
    expect(stateChanges({ store: {} }, { store: many }).length).toBe(200);
  });
});

describe("events of a run", () => {
  const event = (seq: number, type: string, types: string[], value: object = {}): StreamEvent => ({ seq, at: AT, type, types, value: value as StreamEvent["value"] });

  it("of the engine are internal", () => {
    expect(isInternal(event(0, "StepStateChanged", ["InternalDispatchEvent"]))).toBe(true);
    expect(isInternal(event(0, "Token", ["Event"]))).toBe(false);
    expect(isInternal(event(0, "LoopIterationEvent", ["Event"]))).toBe(false);
  });

  it("that were taken back are known", () => {
    expect([...supersededIn([event(5, "StreamSupersededEvent", [], { cursors: [[1, 2], [4, 4]] })])]).toEqual([1, 2, 4]);
  });
});

describe("the sentence on what holds a run", () => {
  it("tells lengths of time as they are now", () => {
    const now = Date.parse("2026-01-01T00:10:00Z");
    expect(liveSentence("Step 'a' waits since 2026-01-01 00:05:00 UTC (1m 2s).", now)).toBe("Step 'a' waits since 2026-01-01 00:05:00 UTC (5m ago).");
    expect(liveSentence("due at 2026-01-01 00:10:30 UTC (in 54m): E: no (x)", now)).toBe("due at 2026-01-01 00:10:30 UTC (in 30s): E: no (x)");
    expect(liveSentence("It is paused.", now)).toBe("It is paused.");
  });

  it("leaves out an error that is shown beside it", () => {
    expect(withoutError("It failed at 2026-01-01 00:05:00 UTC (5m ago): a: E: no", "a: E: no")).toBe("It failed at 2026-01-01 00:05:00 UTC (5m ago).");
    expect(withoutError("It completed at noon.", null)).toBe("It completed at noon.");
    expect(withoutError("Step 'a' failed: E: no", "E: other")).toBe("Step 'a' failed: E: no");
  });
});

describe("actions", () => {
  const run = (more: object): Run => ({ status: "running", paused: false, parked: null, next_timer_at: null, ...more }) as Run;
  const near = (given: Run, why: Why | null = null): string[] => actionsOf(given, why).filter((each) => each.isNear && !each.refusal).map((each) => each.name);

  it("are those that the state allows", () => {
    expect(near(run({}))).toEqual(["send", "pause", "cancel"]);
    expect(near(run({ paused: true }))).toEqual(["resume", "send", "cancel"]);
    expect(near(run({ status: "failed" }))).toEqual(["retry", "start", "fork"]);
    expect(near(run({ next_timer_at: AT }), { causes: [{ kind: "backoff", sentence: "" }] } as unknown as Why)[0]).toBe("skip");
  });

  it("say why they are not allowed", () => {
    const refusals = Object.fromEntries(actionsOf(run({}), null).map((each) => [each.name, each.refusal]));
    expect(refusals["delete"]).toContain("not ended");
    expect(refusals["cancel"]).toBeNull();
    expect(refusals["skip"]).not.toBeNull();
  });
});

describe("paths of loops", () => {
  it("are the same in each iteration", () => {
    expect(["untilArrived[4]", "untilArrived", "rooms[2]/shelves[4]"].map(loopPath)).toEqual(["untilArrived", "untilArrived", "rooms[2]/shelves"]);
    expect(["untilArrived[4]", "rooms[2]/shelves[4]", "rooms/shelves"].map(plainPath)).toEqual(["untilArrived", "rooms/shelves", "rooms/shelves"]);
  });
});
