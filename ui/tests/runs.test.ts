import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api/errors";
import type { Bulk, Counts, Run } from "../src/api/types";
import { actOnEach, DEEDS, narrowed, requestFor, type Deed } from "../src/lib/bulk";
import { ageOf, apiFilters, append, chipCount, compare, expected, filterOptions, filtersOf, orderOf, prefixFault, pressed, promptText, range, removable, summaryOf, takeChanges, takeFirstPage } from "../src/lib/runs";

const NOW = Date.parse("2026-01-02T00:00:00Z");

function run(run_id: string, change: Partial<Run> = {}): Run {
  return {
    run_id, workflow: "order", kind: "steps", version: null, status: "running", idle_since: null, active_waiters: [], next_timer_at: null, tick: 1, cursor: 0,
    created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z", completed_at: null, result: null, error: null, forked_from: null, handler_id: run_id,
    paused: false, parked: null, stuck: null, asleep: false, kept_events: 0, tags: {}, parent_id: null, in_memory: true, ...change,
  };
}
const at = (run_id: string, minute: number, change: Partial<Run> = {}) => run(run_id, { created_at: `2026-01-01T00:${String(minute).padStart(2, "0")}:00Z`, ...change });
const ids = (rows: readonly Run[]) => rows.map((each) => each.run_id);
const byId = (...rows: Run[]) => new Map(rows.map((each) => [each.run_id, each]));

describe("filters of the list", () => {
  it("are read from the address, and unknown ones are left", () => {
    const query = new URLSearchParams("status=failed&status=cancelled&workflow=a&order=updated_at&foo=1&tag=x%3Dy&stuck=");
    expect(filtersOf(query)).toEqual({ status: ["failed", "cancelled"], workflow: ["a"], tag: ["x=y"] });
    expect(orderOf(query)).toBe("updated_at");
    expect(orderOf(new URLSearchParams("order=nonsense"))).toBe("-created_at");
  });

  it("turn ages into moments when they are asked", () => {
    expect(apiFilters({ created_after: ["24h"], updated_after: ["2026-01-01T10:00:00Z"], workflow: ["a", "b"], id_prefix: ["o"] }, NOW)).toEqual({
      created_after: "2026-01-01T00:00:00.000Z", updated_after: "2026-01-01T10:00:00Z", workflow: ["a", "b"], id_prefix: "o",
    });
  });

  it("change with the chips: statuses add up, what holds a run stands alone", () => {
    expect(pressed({ status: ["failed"] }, "cancelled")["status"]).toEqual(["failed", "cancelled"]);
    expect(pressed({ status: ["failed"] }, "failed")["status"]).toEqual([]);
    expect(pressed({ status: ["failed"] }, "waiting")).toMatchObject({ status: null, waiting: ["true"], idle: null });
    expect(pressed({ waiting: ["true"] }, "waiting")).toMatchObject({ waiting: null });
    expect(pressed({ waiting: ["true"] }, "failed")).toMatchObject({ waiting: null, status: ["failed"] });
  });

  it("can be taken away one by one", () => {
    expect(removable({ tag: ["a=1", "b=2"], status: ["failed"], created_after: ["24h"], id_prefix: ["x"] })).toEqual([
      { name: "tag", value: "a=1", text: "tag a=1", left: ["b=2"] },
      { name: "tag", value: "b=2", text: "tag b=2", left: ["a=1"] },
      { name: "created_after", value: "24h", text: "started after 24h ago", left: [] },
    ]);
  });

  it("are options of the command line, too", () => {
    expect(filterOptions({ status: ["failed"], waiting: ["true"], paused: ["false"], tag: ["a=b"], parent_id: ["p"], created_after: ["2d"], id_prefix: ["x"] })).toEqual([
      "--status", "failed", "--waiting", "--not-paused", "--tag", "a=b", "--parent", "p", "--created-after", "2d", "--id-prefix", "x",
    ]);
  });

  it("say what no run id begins with", () => {
    expect(prefixFault("order-1")).toBeNull();
    expect(prefixFault("")).toBeNull();
    expect(prefixFault("a b")).toContain("Run ids");
  });
});

describe("counts of the chips", () => {
  const one = { total: 3, running: 2, completed: 1, failed: 0, cancelled: 0, idle: 1, asleep: 0, waiting: 1, paused: 0, parked: 0, stuck: 0 };
  const counts = { at: "", ...one, total: 6, failed: 3, workflows: [{ workflow: "a", ...one }, { workflow: "b", ...one, failed: 3 }] } as Counts;

  it("are those of the chosen workflows", () => {
    expect(chipCount(counts, "failed", undefined)).toBe(3);
    expect(chipCount(counts, "failed", ["a"])).toBe(0);
    expect(chipCount(null, "failed", ["a"])).toBeNull();
    expect(chipCount({ ...counts, failed: null }, "failed", ["a"])).toBeNull();
  });

  it("tell how many a filter matches, where they can", () => {
    expect(expected(counts, {})).toBe(6);
    expect(expected(counts, { status: ["failed", "completed"] })).toBe(4);
    expect(expected(counts, { status: ["failed"], workflow: ["b"] })).toBe(3);
    expect(expected(counts, { waiting: ["true"] })).toBe(1);
    expect(expected(counts, { waiting: ["false"] })).toBeNull();
    expect(expected(counts, { id_prefix: ["x"] })).toBeNull();
    expect(expected(counts, { status: ["failed"], tag: ["a=b"] })).toBeNull();
    expect(expected(null, {})).toBeNull();
  });
});

describe("one line about a run", () => {
  const waiter = { step: "pack", waiter_id: null, event_type: "shop.Answer", requirements: {}, since: null, deadline: null, refused: null, kind: "event" as const, schema: null, prompt: { items: [1], text: "Send it?" } };

  it("asks what it asks", () => {
    expect(summaryOf(run("a", { active_waiters: [waiter], idle_since: "x" })).text).toBe("Send it? — Answer");
    expect(summaryOf(run("a", { active_waiters: [{ ...waiter, prompt: null }, waiter] })).text).toBe("Waits for Answer (and 1 more)");
    expect(summaryOf(run("a", { active_waiters: [{ ...waiter, deadline: "2026-01-03T00:00:00Z" }] }))).toMatchObject({ text: "Send it? — Answer, until", at: "2026-01-03T00:00:00Z" });
    expect(summaryOf(run("a", { active_waiters: [{ ...waiter, refused: { step: "pack", event_type: "shop.Answer", reason: "no", at: "", waiter_id: null } }] }))).toMatchObject({ text: "Refused Answer: no", tone: "warn" });
    expect(summaryOf(run("a", { active_waiters: [waiter], paused: true })).text).toBe("Paused. Send it? — Answer");
    expect(summaryOf(run("a", { active_waiters: [{ ...waiter, kind: "child" }] })).text).toBe("Waits for a child run.");
  });

  it("says why it stands", () => {
    expect(summaryOf(run("a", { stuck: "nothing left" }))).toMatchObject({ text: "nothing left", tone: "bad" });
    expect(summaryOf(run("a", { parked: "no code\nat all" }))).toMatchObject({ text: "no code", tone: "warn" });
    expect(summaryOf(run("a", { asleep: true, next_timer_at: "2026-01-03T00:00:00Z" }))).toMatchObject({ text: "Goes on", at: "2026-01-03T00:00:00Z" });
    expect(summaryOf(run("a", { asleep: true, next_timer_at: "2026-01-01T23:59:50Z" }), NOW).text).toBe("Goes on");
    expect(summaryOf(run("a", { asleep: true, next_timer_at: "2026-01-01T23:59:00Z" }), NOW)).toEqual({ text: "No worker has gone on with it. It was due", at: "2026-01-01T23:59:00Z", tone: "warn" });
    expect(summaryOf(run("a", { asleep: true }), NOW).text).toBe("Asleep until a timer is due.");
    const error = { code: "failed", type: "builtins.ValueError", message: "no card\n  at line 1", step: "charge", attempts: 3, traceback: null };
    expect(summaryOf(run("a", { status: "failed", error }))).toEqual({ text: "charge: ValueError: no card", at: null, tone: "bad" });
    expect(summaryOf(run("a", { error: { ...error, code: "unanswered" } })).text).toBe("No worker answers.");
    expect(summaryOf(run("a")).text).toBe("");
  });

  it("makes a text of any prompt", () => {
    expect(promptText("Go?")).toBe("Go?");
    expect(promptText(null)).toBe("");
    expect(promptText({ reason: "too small", n: 2, deep: { a: 1 } })).toBe('reason: too small, n: 2, deep: {"a":1}');
    expect(promptText(["a", { text: "b" }])).toBe("a, b");
  });

  it("knows how long a run is there", () => {
    expect(ageOf({ created_at: "2026-01-01T23:59:30Z", completed_at: null }, NOW)).toBe(30);
    expect(ageOf({ created_at: "2026-01-01T23:58:30Z", completed_at: null }, NOW)).toBe(60);
    expect(ageOf({ created_at: "2026-01-01T23:59:00Z", completed_at: "2026-01-01T23:59:05Z" }, NOW)).toBe(5);
  });
});

describe("changes of the list", () => {
  const rows = [at("c", 3), at("b", 2), at("a", 1)];

  it("puts new runs where the order wants them", () => {
    const list = { rows, complete: true, order: "-created_at" as const };
    expect(ids(takeChanges(list, byId(at("d", 4), at("ab", 1, { created_at: "2026-01-01T00:01:30Z" })), new Set(), false).rows)).toEqual(["d", "c", "b", "ab", "a"]);
    expect(ids(takeChanges({ ...list, rows: [...rows].reverse(), order: "created_at" }, byId(at("d", 4)), new Set(), false).rows)).toEqual(["a", "b", "c", "d"]);
  });

  it("leaves a run to the page that it belongs to", () => {
    const list = { rows, complete: false, order: "-created_at" as const };
    expect(ids(takeChanges(list, byId(at("old", 0), at("d", 4)), new Set(), false).rows)).toEqual(["d", "c", "b", "a"]);
  });

  it("holds new runs back while one looks further down, and changes what is there", () => {
    const list = { rows, complete: false, order: "-created_at" as const };
    const taken = takeChanges(list, byId(at("d", 4), at("b", 2, { tick: 5 })), new Set(["a"]), true);
    expect(ids(taken.rows)).toEqual(["c", "b"]);
    expect(taken.rows[1]?.tick).toBe(5);
    expect(ids(taken.newer)).toEqual(["d"]);
  });

  it("moves a changed run if the order is that of changes", () => {
    const list = { rows, complete: true, order: "-updated_at" as const };
    expect(ids(takeChanges(list, byId(at("a", 1, { tick: 2, updated_at: "2026-01-01T10:00:00Z" })), new Set(), false).rows)[0]).toBe("a");
    expect(compare("updated_at")(at("x", 0), at("y", 0))).toBe(0);
  });

  it("finds what is gone from a first page that was loaded again", () => {
    const list = { rows, complete: false, order: "-created_at" as const };
    expect([...takeFirstPage(list, [at("d", 4), at("b", 2)], false).gone]).toEqual(["c"]);
    expect([...takeFirstPage(list, [at("d", 4)], true).gone]).toEqual(["c", "b", "a"]);
    expect([...takeFirstPage(list, [], true).gone]).toEqual(["c", "b", "a"]);
  });

  it("appends pages without a run twice", () => {
    const more = append(rows, [at("a", 1, { tick: 9 }), at("z", 0)]);
    expect(ids(more)).toEqual(["c", "b", "a", "z"]);
    expect(more[2]?.tick).toBe(9);
  });

  it("selects a range in either direction", () => {
    expect(range(rows, "a", "c")).toEqual(["c", "b", "a"]);
    expect(range(rows, "gone", "b")).toEqual(["b"]);
  });
});

describe("actions on many runs", () => {
  it("apply to runs in a state for them", () => {
    const fitting = (change: Partial<Run>) => DEEDS.filter((deed) => deed.fits(run("a", change))).map((deed) => deed.action);
    expect(fitting({})).toEqual(["cancel", "pause"]);
    expect(fitting({ paused: true })).toEqual(["cancel", "resume"]);
    expect(fitting({ parked: "why" })).toEqual(["cancel", "pause", "resume"]);
    expect(fitting({ status: "failed" })).toEqual(["retry", "delete"]);
    expect(fitting({ status: "completed" })).toEqual(["delete"]);
  });

  it("mean, of all that match, those in a state for them", () => {
    const deed = (action: string) => DEEDS.find((each) => each.action === action) as Deed;
    expect(narrowed(deed("cancel"), { workflow: ["a"] })).toEqual({ workflow: ["a"], status: ["running"] });
    expect(narrowed(deed("delete"), {})).toEqual({ status: ["completed", "failed", "cancelled"] });
    expect(narrowed(deed("delete"), { status: ["failed", "running"] })).toEqual({ status: ["failed"] });
    expect(narrowed(deed("cancel"), { status: ["failed"] })).toBeNull();
    expect(narrowed(deed("resume"), {})).toEqual({ status: ["running"], paused: ["true"] });
    expect(narrowed(deed("resume"), { parked: ["true"] })).toEqual({ status: ["running"], parked: ["true"] });
  });

  it("send one request each", () => {
    expect(requestFor("delete", "a:b", "")).toEqual({ method: "DELETE", path: "/runs/a%3Ab" });
    expect(requestFor("cancel", "a", "why")).toEqual({ method: "POST", path: "/runs/a/cancel", body: { reason: "why" } });
  });

  it("go on over a refusal, and list it with its reason", async () => {
    const told: Bulk[] = [];
    const act = async (_: string, id: string) => {
      if (id === "b") throw new ApiError({ status: 409, code: "run-finished", title: "", detail: "It has ended." });
    };
    await actOnEach("cancel", ["a", "b", "c"], "", (progress) => told.push(progress), new AbortController().signal, act);
    expect(told.at(-1)).toMatchObject({ done: 2, matched: 3, finished: true, failed: [{ run_id: "b", code: "run-finished", message: "It has ended." }] });
    expect(told.slice(0, -1).every((each) => !each.finished)).toBe(true);
  });

  it("stop where the server is gone, and where one says so", async () => {
    const tried: string[] = [];
    const many = Array.from({ length: 50 }, (_, index) => String(index));
    const lost = async (_: string, id: string) => {
      tried.push(id);
      throw new ApiError({ status: 0, code: "unreachable", title: "", detail: "" });
    };
    await expect(actOnEach("cancel", many, "", () => undefined, new AbortController().signal, lost)).rejects.toThrow();
    expect(tried.length).toBeLessThan(10);
    const abort = new AbortController();
    let done = 0;
    await actOnEach("cancel", many, "", (progress) => { done = progress.done; if (done >= 10) abort.abort(); }, abort.signal, async () => undefined);
    expect(done).toBeLessThan(20);
  });
});
