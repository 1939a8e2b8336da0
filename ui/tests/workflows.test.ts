import { describe, expect, it } from "vitest";
import type { Counts, Definition, Worker } from "../src/api/types";
import { schemaRows, typeText } from "../src/lib/schema_rows";
import { placesBelow, startBody, startCommand } from "../src/lib/start";
import { countsOf, errorRate, parseTags, percent, servingOf, workflowRows } from "../src/lib/workflows";

const worker = (name: string, more: Partial<Worker>): Worker => ({ name, alive: true, since: null, seen: null, until: null, workflows: null, runs_in_memory: null, owned: null, host: null, pid: null, version: null, is_this: false, ...more }) as Worker;

describe("who works for a workflow", () => {
  it("knows this server, others and nobody", () => {
    expect(servingOf("a", true, null).label).toBe("served");
    expect(servingOf("a", false, [worker("w", { workflows: ["a"] })]).about).toContain("w");
    expect(servingOf("a", false, [worker("w", { workflows: ["a"], alive: false })]).label).toBe("no worker");
    expect(servingOf("a", null, [worker("w", { workflows: ["a"], is_this: true })]).about).toContain("This server");
  });

  it("does not claim to know what workers do not tell", () => {
    expect(servingOf("a", false, null).label).toBe("not known");
    expect(servingOf("a", false, [worker("w", {})]).label).toBe("not known");
  });
});

describe("rows of workflows", () => {
  it("keeps runs of a workflow whose code nobody has", () => {
    const counts = { at: "", workflows: [{ workflow: "old", total: 1, running: 1 }] } as unknown as Counts;
    const rows = workflowRows([{ name: "new" } as Definition], counts);
    expect(rows.map((row) => [row.name, row.definition !== null, row.counts?.running])).toEqual([["new", true, 0], ["old", false, 1]]);
  });

  it("knows no runs from runs that nobody has counted", () => {
    const counted = (total: number | null) => ({ at: "", total, workflows: [] }) as unknown as Counts;
    expect(countsOf("new", counted(0))?.failed).toBe(0);
    expect([countsOf("new", counted(7)), countsOf("new", counted(null)), countsOf("new", null)]).toEqual([null, null, null]);
  });

  it("counts failures among what has ended", () => {
    expect(errorRate({ completed: 3, failed: 1, cancelled: 0 })).toBe(0.25);
    expect(errorRate({ completed: 0, failed: 0, cancelled: 0 })).toBeNull();
    expect([null, 0, 0.0004, 0.125, 0.5].map(percent)).toEqual(["–", "0 %", "< 0.1 %", "13 %", "50 %"]);
  });
});

describe("a start", () => {
  const given = { workflow: "order", input: { n: 1 }, runId: "o 1", tags: { a: "b=c" }, parameters: { p: "x" }, variables: null };

  it("is a request and a command", () => {
    expect(startBody(given)).toEqual({ workflow: "order", input: { n: 1 }, run_id: "o 1", tags: { a: "b=c" }, parameters: { p: "x" } });
    expect(startCommand(given)).toEqual(["runs", "start", "order", '{"n":1}', "--run-id", "o 1", "--tag", "a=b=c", "--parameter", 'p="x"']);
    expect(startBody({ workflow: "w", input: undefined, runId: "", tags: {} })).toEqual({ workflow: "w" });
  });

  it("puts problems at the fields of its form", () => {
    expect(placesBelow([{ path: "/input/items", message: "x" }, { path: "/inputs", message: "y" }, { path: "/input", message: "z" }], "/input")).toEqual([{ path: "/items", message: "x" }, { path: "", message: "z" }]);
  });

  it("reads tags", () => {
    expect(parseTags("a=b\n\n c = d=e ")).toEqual({ tags: { a: "b", c: "d=e" }, problem: null });
    expect(parseTags("nothing").problem).toContain("nothing");
  });
});

describe("schemas as tables", () => {
  const schema = {
    $defs: { Item: { type: "object", properties: { name: { type: "string", description: "What." } }, required: ["name"] } },
    type: "object",
    required: ["items"],
    properties: { items: { type: "array", items: { $ref: "#/$defs/Item" } }, by: { enum: ["bike", "van"], default: "bike" }, note: { anyOf: [{ type: "string" }, { type: "null" }] } },
  };

  it("names fields, also those of objects in lists", () => {
    expect(schemaRows(schema)).toEqual([
      { name: "items", type: "list of object", required: true, fallback: null, about: "" },
      { name: "items[].name", type: "text", required: true, fallback: null, about: "What." },
      { name: "by", type: "bike | van", required: false, fallback: '"bike"', about: "" },
      { name: "note", type: "text or null", required: false, fallback: null, about: "" },
    ]);
  });

  it("ends in schemas that refer to themselves", () => {
    const tree = { $defs: { T: { type: "object", properties: { next: { $ref: "#/$defs/T" }, all: { type: "array", items: { $ref: "#/$defs/T" } } } } }, $ref: "#/$defs/T" };
    expect(schemaRows(tree).length).toBeLessThanOrEqual(200);
    expect(typeText({ type: "array", items: {} }, {})).toBe("list");
    expect(schemaRows({ $ref: "#/nowhere" })).toEqual([]);
  });
});
