import { describe, expect, it } from "vitest";
import type { Run, Waiter, Why } from "../src/api/types";
import { answerFor, deliveryText, detailsOf, follow, keyOf, newId, outcomeOf, questionsOf, resultText, shownQuestions, titleOf, type Outcome, type Question } from "../src/lib/inbox";

const waiter = (change: Partial<Waiter> = {}): Waiter => ({ step: "pack", waiter_id: "w1", event_type: "shop.Answer", requirements: {}, since: "2026-01-01T00:00:00Z", deadline: null, refused: null, kind: "event", schema: null, prompt: { text: "Send it?" }, ...change });

function run(run_id: string, change: Partial<Run> = {}): Run {
  return {
    run_id, workflow: "order", kind: "steps", version: null, status: "running", idle_since: "2026-01-01T00:00:00Z", active_waiters: [waiter()], next_timer_at: null, tick: 3, cursor: 0,
    created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z", completed_at: null, result: null, error: null, forked_from: null, handler_id: run_id,
    paused: false, parked: null, stuck: null, asleep: false, kept_events: 0, tags: {}, parent_id: null, in_memory: true, ...change,
  };
}
const question = (each: Run, index = 0): Question => questionsOf([each]).questions[index] as Question;

describe("questions of runs", () => {
  it("are oldest first, one for each waiter, without those for programs", () => {
    const { questions, others } = questionsOf([
      run("late", { active_waiters: [waiter({ since: "2026-01-03T00:00:00Z" })] }),
      run("two", { active_waiters: [waiter({ waiter_id: "b" }), waiter({ kind: "child" }), waiter({ waiter_id: null, kind: "input", since: null })], idle_since: "2026-01-02T00:00:00Z" }),
      run("machine", { active_waiters: [waiter({ kind: "callback" })] }),
      run("none", { active_waiters: null }),
    ]);
    expect(questions.map((each) => [each.run.run_id, each.since.slice(8, 10)])).toEqual([["two", "01"], ["two", "02"], ["late", "03"]]);
    expect(others.map((each) => each.run_id)).toEqual(["machine"]);
    expect(new Set(questions.map((each) => each.key)).size).toBe(3);
  });

  it("stay in place when they were answered here, and come back when they are asked anew", () => {
    const asked = question(run("a"));
    const answered = new Map([[asked.key, { question: asked, tick: 3 }]]);
    expect(shownQuestions([asked], answered, null)).toEqual([asked]);
    expect(shownQuestions([], answered, null)).toEqual([asked]);
    const anew = question(run("a", { tick: 7 }));
    expect(anew.key).toBe(asked.key);
    expect(shownQuestions([anew], answered, null)).toEqual([anew]);
  });

  it("are kept while somebody writes, though they are gone", () => {
    const asked = question(run("a"));
    expect(shownQuestions([], new Map(), asked)).toEqual([asked]);
    expect(shownQuestions([asked], new Map(), asked)).toEqual([asked]);
  });

  it("are told as text", () => {
    expect(titleOf(waiter())).toBe("Send it?");
    expect(titleOf(waiter({ prompt: null }))).toBe("Waits for Answer");
    expect(titleOf(waiter({ prompt: "<b>bold</b>\n two" }))).toBe("<b>bold</b> two");
    expect(titleOf(waiter({ prompt: "x".repeat(500) })).length).toBe(241);
    expect(detailsOf({ text: "Send it?", items: ["a"], none: null })).toEqual([["items", ["a"]]]);
    expect(detailsOf({ reason: "too small" })).toEqual([]);
    expect(detailsOf({ reason: "x".repeat(120) }).length).toBe(1);
    expect(detailsOf("text")).toEqual([]);
  });
});

describe("an answer", () => {
  it("names its waiter, or its step", () => {
    expect(answerFor(waiter(), { a: 1 }, "i")).toEqual({ type: "shop.Answer", value: { a: 1 }, waiter_id: "w1", event_id: "i" });
    expect(answerFor(waiter({ waiter_id: null }), undefined, "i")).toEqual({ type: "shop.Answer", step: "pack", event_id: "i" });
    expect(newId()).toMatch(/^[0-9a-f]{24}$/);
    expect(newId()).not.toBe(newId());
  });

  it("is told with what the server did with it", () => {
    expect(deliveryText({ delivered: "waiter", duplicate: false, tick: 1 }).tone).toBe("busy");
    expect(deliveryText({ delivered: "kept", duplicate: false, tick: 1 }).text).toContain("keeps it");
    expect(deliveryText({ delivered: "inbox", duplicate: false, tick: null }).text).toContain("Another server");
    expect(deliveryText({ delivered: null, duplicate: false, tick: 1 }).tone).toBe("warn");
    expect(deliveryText({ delivered: null, duplicate: true, tick: null }).text).toContain("already");
  });
});

describe("what the run did next", () => {
  const asked = question(run("a"));
  const after = (change: Partial<Run>) => outcomeOf(run("a", { active_waiters: [], idle_since: null, tick: 4, ...change }), asked, 3);

  it("is said in one sentence", () => {
    expect(after({ status: "completed", result: { type: "StopEvent", value: { result: "sent" } } })).toEqual({ text: "The run completed: sent", tone: "ok", final: true });
    expect(after({ status: "failed", error: { code: "failed", type: "E", message: "no", step: null, attempts: 1, traceback: null } })?.text).toBe("The run failed: no");
    expect(after({ status: "cancelled" })?.tone).toBe("warn");
    expect(after({ tick: 3 })).toBeNull();
    expect(after({ paused: true })?.text).toContain("paused");
    expect(after({ asleep: true })?.text).toContain("sleeps");
    expect(after({ idle_since: "x", active_waiters: [waiter({ waiter_id: "w2", prompt: "And now?" })] })?.text).toBe("The run went on, and asks again: And now?");
    expect(after({})).toMatchObject({ final: false });
  });

  it("tells a refusal, not one from before", () => {
    const refused = { step: "pack", event_type: "shop.Answer", reason: "too small", at: "2026-01-01T00:00:05Z", waiter_id: "w1" };
    expect(after({ tick: 4, active_waiters: [waiter({ refused })] })).toMatchObject({ refused: true, tone: "bad" });
    const old = question(run("a", { active_waiters: [waiter({ refused })] }));
    expect(outcomeOf(run("a", { active_waiters: [waiter({ refused })] }), old, 3)).toBeNull();
  });

  it("shortens a result", () => {
    expect(resultText({ result: { type: "StopEvent", value: { a: 1, b: 2 } } })).toBe('{"a":1,"b":2}');
    expect(resultText({ result: { type: "StopEvent", value: {} } })).toBe("");
    expect(resultText({ result: { type: "StopEvent", value: [1] } })).toBe("[1]");
    expect(resultText({ result: null })).toBe("");
  });

  it("is followed until it is clear", async () => {
    const states = [run("a"), run("a", { active_waiters: [], idle_since: null, tick: 4 }), run("a", { status: "completed", tick: 5 })];
    const told: Outcome[] = [];
    const why = { status: "running", sentence: "Step 'pack' executes" } as Why;
    const ask = { run: async () => states.shift() as Run, why: async () => why, pause: async () => undefined };
    const last = await follow(asked, 3, ask, (outcome) => told.push(outcome), new AbortController().signal);
    expect(told.map((each) => each.text)).toEqual(["The run went on: step 'pack' executes", "The run completed."]);
    expect(last?.final).toBe(true);
    expect(keyOf("a", waiter())).toBe(asked.key);
  });

  it("is not followed for ever, nor when nobody looks", async () => {
    let looks = 0;
    const ask = { run: async () => ((looks += 1), run("a")), why: async () => ({}) as Why, pause: async () => undefined };
    expect(await follow(asked, 3, ask, () => undefined, new AbortController().signal)).toBeNull();
    expect(looks).toBe(9);
    expect(await follow(asked, 3, ask, () => undefined, AbortSignal.abort())).toBeNull();
    expect(looks).toBe(9);
  });
});
