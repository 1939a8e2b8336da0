import { describe, expect, it } from "vitest";
import { adviceFor, ApiError, errorFrom, unreachable } from "../src/api/errors";
import { mergeBySeq, mergeRows, superseded } from "../src/api/live";
import { curlCommand, quote } from "../src/lib/shell";

const none = { get: () => null };

describe("errors of the API", () => {
  it("reads a problem with the places in the request", () => {
    const body = JSON.stringify({ title: "The request is not valid", detail: "No.", code: "invalid-request", request_id: "r-1", errors: [{ path: "/input/name", message: "missing" }, 7] });
    const error = errorFrom(400, body, none);
    expect(error).toBeInstanceOf(ApiError);
    expect(error.code).toBe("invalid-request");
    expect(error.requestId).toBe("r-1");
    expect(error.places).toEqual([{ path: "/input/name", message: "missing" }]);
    expect(error.transient).toBe(false);
  });

  it("survives what a proxy answers", () => {
    const error = errorFrom(502, "<html>Bad gateway</html>", { get: (name) => (name === "Retry-After" ? "3" : null) });
    expect(error.code).toBe("http-502");
    expect(error.transient).toBe(true);
    expect(error.retryAfter).toBe(3);
  });

  it("says what to do", () => {
    expect(adviceFor(unreachable())).toContain("loom serve");
    expect(adviceFor(errorFrom(404, "{}", none))).toContain("older");
    expect(adviceFor(errorFrom(418, "{}", none))).toBeNull();
  });
});

describe("merging of live data", () => {
  it("appends what follows and drops what came before", () => {
    const known = mergeBySeq([{ seq: 1 }, { seq: 2 }], [{ seq: 2 }, { seq: 4 }, { seq: 3 }]);
    expect(known.map((each) => each.seq)).toEqual([1, 2, 3, 4]);
    expect(mergeBySeq(known, [{ seq: 5 }]).map((each) => each.seq)).toEqual([1, 2, 3, 4, 5]);
    expect(mergeBySeq(known, [])).toBe(known);
  });

  it("knows which entries do not count any more", () => {
    expect(superseded({ type: "StreamSupersededEvent", value: { cursors: [[2, 4]] } })).toEqual([[2, 4]]);
    expect(superseded({ type: "Token", value: { cursors: [[2, 4]] } })).toEqual([]);
  });

  it("puts changed rows in their places, never an older one over a newer", () => {
    const row = (run_id: string, tick: number) => ({ run_id, tick, updated_at: "" });
    const known = [row("b", 2), row("a", 5), row("gone", 1)];
    const changed = new Map([["a", row("a", 4)], ["b", row("b", 3)], ["c", row("c", 0)], ["old", row("old", 9)]]);
    const merged = mergeRows(known, changed, new Set(["gone"]), (run) => run.run_id !== "old");
    expect(merged.rows).toEqual([row("c", 0), row("b", 3), row("a", 5)]);
    expect(merged.added).toBe(1);
  });
});

describe("commands", () => {
  it("quotes what a shell would read otherwise", () => {
    expect(quote("order-1")).toBe("order-1");
    expect(quote("it's $HOME")).toBe("'it'\\''s $HOME'");
  });

  it("writes curl with the prefix of the page, and without the key itself", () => {
    const text = curlCommand("http://h/x/y/ui/?a#/runs", { method: "POST", path: "/runs/1/cancel", body: { reason: "no" } }, true);
    expect(text).toBe(`curl -s -H "Authorization: Bearer $LOOM_KEY" --json '{"reason":"no"}' http://h/x/y/v1/runs/1/cancel`);
  });
});
