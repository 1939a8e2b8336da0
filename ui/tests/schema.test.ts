import { describe, expect, it } from "vitest";
import { faultText, readJson } from "../src/lib/json";
import { draftOf, isSecret, planOf, problemsAt, problemsUnder, quickAnswers, read, type Draft } from "../src/lib/schema";

// As pydantic writes it.
const ORDER = {
  $defs: {
    Color: { enum: ["red", "blue"], title: "Color", type: "string" },
    Line: { properties: { name: { minLength: 1, title: "Name", type: "string" }, count: { anyOf: [{ type: "integer" }, { type: "null" }], default: null, title: "Count" } }, required: ["name"], title: "Line", type: "object" },
    Tree: { properties: { name: { type: "string" }, left: { anyOf: [{ $ref: "#/$defs/Tree" }, { type: "null" }], default: null } }, required: ["name"], type: "object" },
  },
  properties: {
    line: { $ref: "#/$defs/Line", description: "The first line." },
    lines: { default: [], items: { $ref: "#/$defs/Line" }, title: "Lines", type: "array" },
    other: { anyOf: [{ $ref: "#/$defs/Line" }, { type: "null" }], default: null },
    at: { format: "date-time", title: "At", type: "string" },
    carrier: { default: "post", enum: ["bike", "post"], title: "Carrier", type: "string" },
    color: { $ref: "#/$defs/Color" },
    kind: { const: "k", default: "k", title: "Kind", type: "string" },
    prices: { additionalProperties: { type: "number" }, default: {}, type: "object" },
    either: { anyOf: [{ type: "integer" }, { type: "string" }], default: 3 },
    share: { exclusiveMaximum: 1, minimum: 0, title: "Share", type: "number" },
    any: { default: null, title: "Any" },
    price: { anyOf: [{ type: "number" }, { pattern: "^\\d+$", type: "string" }] },
    tree: { anyOf: [{ $ref: "#/$defs/Tree" }, { type: "null" }], default: null },
  },
  required: ["line", "at", "color", "share"],
  title: "Order",
  type: "object",
};

const plan = (name: keyof typeof ORDER.properties) => planOf(ORDER.properties[name], ORDER, name);
const one = (schema: object, draft: Draft, required = true) => read(schema, schema, draft, required);
const value = (schema: object, given?: unknown) => read(schema, schema, draftOf(schema, schema, given, true)).value;

describe("what a schema is drawn as", () => {
  it("knows what pydantic writes", () => {
    expect(Object.fromEntries(Object.keys(ORDER.properties).map((name) => [name, plan(name as keyof typeof ORDER.properties).kind]))).toEqual({
      line: "object", lines: "list", other: "object", at: "text", carrier: "choice", color: "choice", kind: "constant", prices: "map",
      either: "json", share: "number", any: "json", price: "number", tree: "object",
    });
    expect(plan("line").help).toBe("The first line.");
    expect(plan("other").nullable).toBe(true);
    expect(plan("share").hint).toBe("at least 0, less than 1");
    expect(plan("at").input).toBe("datetime-local");
  });

  it("draws what it does not understand as JSON", () => {
    for (const schema of [true, {}, { type: "array" }, { prefixItems: [{}], type: "array" }, { type: ["string", "integer"] }, { $ref: "#/nowhere" }, { $ref: "other.json" }, { type: "object" }, { type: "object", properties: {}, additionalProperties: true }, { anyOf: [{ type: "object", properties: { a: {} } }, { type: "string" }] }]) {
      expect(planOf(schema, schema).kind, JSON.stringify(schema)).toBe("json");
    }
  });

  it("ends on a schema that refers to itself", () => {
    const loop = { $defs: { A: { $ref: "#/$defs/A" } }, $ref: "#/$defs/A" };
    expect(planOf(loop, loop).kind).toBe("json");
    const deep = { $defs: { B: { type: "object", properties: { b: { $ref: "#/$defs/B" } }, required: ["b"] } }, $ref: "#/$defs/B" };
    expect(() => draftOf(deep, deep, undefined, true)).not.toThrow();
  });

  it("reads choices with titles, and types in a list", () => {
    expect(planOf({ oneOf: [{ const: 1, title: "One" }, { const: 2 }] }, {}).options).toEqual([{ text: "One", value: 1 }, { text: "2", value: 2 }]);
    const optional = planOf({ type: ["integer", "null"] }, {});
    expect([optional.kind, optional.integer, optional.nullable]).toEqual(["number", true, true]);
  });
});

describe("what a form gives", () => {
  it("leaves out what is optional and empty, and shows what is missing", () => {
    const { value: given, problems } = read(ORDER, ORDER, draftOf(ORDER, ORDER, undefined, true));
    expect(given).toEqual({ line: {}, carrier: "post", kind: "k", either: 3 });
    expect(problems.map((problem) => problem.path)).toEqual(["/line/name", "/at", "/color", "/share"]);
    expect(problems.every((problem) => problem.missing)).toBe(true);
  });

  it("gives back what it was made from", () => {
    const full = {
      line: { name: "a", count: 2 }, lines: [{ name: "b" }], other: { name: "c" }, at: "2026-01-02T03:04:05Z", carrier: "bike", color: "red", kind: "k",
      prices: { tea: 1.5, "a/b": 2 }, either: "x", share: 0.5, any: [1], price: 3, tree: { name: "root", left: { name: "leaf" } }, more: "kept",
    };
    const { value: given, problems } = read(ORDER, ORDER, draftOf(ORDER, ORDER, full, true));
    expect(problems).toEqual([]);
    expect(given).toEqual(full);
  });

  it("keeps a value that does not fit as JSON to mend", () => {
    const draft = draftOf({ type: "integer" }, {}, "many", true);
    expect(draft).toEqual({ json: '"many"' });
    expect(value({ type: "object", properties: { a: { type: "string" } } }, { a: { b: 1 } })).toEqual({ a: { b: 1 } });
  });

  it("says null where a default would come back", () => {
    const schema = { type: "object", properties: { a: { anyOf: [{ type: "string" }, { type: "null" }], default: "x" }, b: { type: "array", items: { type: "string" }, default: ["y"] } } };
    const draft: Draft = { present: true, members: { a: { text: "" }, b: { items: [] } }, rest: {} };
    expect(one(schema, draft).value).toEqual({ a: null, b: [] });
  });

  it("checks numbers", () => {
    const integer = { type: "integer", minimum: 1, maximum: 5 };
    const message = (text: string, schema: object = integer) => one(schema, { text }).problems[0]?.message ?? null;
    expect(one(integer, { text: " 3 " }).value).toBe(3);
    expect(one({ type: "number" }, { text: "1,5" }).value).toBe(1.5);
    expect(message("3.5")).toContain("whole");
    expect(message("0")).toContain("1 or more");
    expect(message("9")).toContain("5 or less");
    expect(message("three")).toContain("not a number");
    expect(message("0x10", { type: "number" })).toContain("not a number");
    expect(message("12345678901234567890", { type: "integer" })).toContain("too long");
    expect(message("1", { type: "number", exclusiveMaximum: 1 })).toContain("less than 1");
  });

  it("checks texts, and leaves patterns to the server", () => {
    const message = (schema: object, text: string) => one(schema, { text }).problems[0]?.message ?? null;
    expect(message({ type: "string", minLength: 3 }, "ab")).toContain("3 characters");
    expect(message({ type: "string", maxLength: 2 }, "abc")).toContain("has 3");
    expect(message({ type: "string", format: "uuid" }, "x")).toContain("UUID");
    expect(message({ type: "string", format: "email" }, "x")).toContain("e-mail");
    expect(message({ type: "string", pattern: "(a+)+$" }, `${"a".repeat(40)}!`)).toBeNull();
  });

  it("says limits in words", () => {
    expect(planOf({ type: "array", items: {}, minItems: 1 }, {}).hint).toBe("at least 1 item");
    expect(planOf({ type: "array", items: {}, minItems: 1, maxItems: 3 }, {}).hint).toBe("1 to 3 items");
    expect(planOf({ type: "string", minLength: 2 }, {}).hint).toBe("at least 2 characters");
    expect(planOf({ type: "integer", minimum: 0 }, {}).hint).toBe("at least 0");
  });

  it("counts items, and finds names that are there twice", () => {
    const list = { type: "array", items: { type: "string" }, minItems: 1, maxItems: 2 };
    expect(one(list, { items: [] }).problems[0]?.message).toContain("at least one");
    expect(one(list, { items: [{ text: "a" }, { text: "b" }, { text: "c" }] }).problems[0]?.message).toContain("at most 2");
    const map = { type: "object", additionalProperties: { type: "integer" } };
    const entry = { name: "a", draft: { text: "1" } };
    expect(one(map, { entries: [entry, entry] }).problems[0]?.message).toContain("twice");
  });

  it("takes a value of JSON, and nothing where a value may be absent", () => {
    expect(read(null, null, { json: "" }, false)).toEqual({ value: undefined, problems: [] });
    expect(read(null, null, { json: '{"a": [1]}' }, false).value).toEqual({ a: [1] });
    expect(read({ type: "object" }, {}, { json: "" }).value).toEqual({});
    expect(read(null, null, { json: '{"a": }' }, false).problems[0]?.message).toBe('Line 1, column 7: Expected a value, found "}".');
  });
});

describe("problems of the server", () => {
  it("are put at their fields", () => {
    const places = problemsUnder([{ path: "/input/line/name", message: "too short" }, { path: "/run_id", message: "taken" }], "input");
    expect(places).toEqual([{ path: "/line/name", message: "too short" }, { path: "", message: "/run_id: taken" }]);
    expect(problemsAt(places, "/line/name", true)).toEqual(["too short"]);
    expect(problemsAt(places, "/line", true)).toEqual(["/name: too short"]);
    expect(problemsAt(places, "/line", false)).toEqual([]);
  });
});

describe("answers in one click", () => {
  it("are offered for one yes or no, and for one choice", () => {
    const yes = { type: "object", properties: { approved: { type: "boolean" } }, required: ["approved"] };
    expect(quickAnswers(yes)).toEqual([{ label: "Approve", value: { approved: true } }, { label: "Reject", value: { approved: false } }]);
    const choice = { type: "object", properties: { kind: { const: "k" }, by: { enum: ["bike", "van"] } } };
    expect(quickAnswers(choice)?.map((answer) => answer.value)).toEqual([{ kind: "k", by: "bike" }, { kind: "k", by: "van" }]);
    expect(quickAnswers({ ...yes, properties: { ...yes.properties, note: { type: "string" } } })).toBeNull();
    expect(quickAnswers({ type: "object", properties: { name: { type: "string" } } })).toBeNull();
    expect(quickAnswers({ type: "object", properties: { by: { enum: ["bike", "a".repeat(41)] } } })).toBeNull();
    expect(quickAnswers(null)).toBeNull();
  });

  it("knows fields that must not be stored", () => {
    expect(isSecret({ properties: { pin: { type: "string", format: "password" } } })).toBe(true);
    expect(isSecret({ properties: { pin: { type: "string" } } })).toBe(false);
  });
});

describe("JSON that people write", () => {
  it("reads all that JSON.parse reads", () => {
    for (const text of ["1", " null ", '"a\\u00e9\\n"', "[]", "[1, 2.5e-3, -0]", '{"a":{"b":[true,false]}}', '{"a": 1,\n "b": 2}']) {
      expect(readJson(text)).toEqual({ ok: true, value: JSON.parse(text) });
    }
  });

  it("names the place of the first fault", () => {
    const fault = (text: string) => {
      const result = readJson(text);
      return result.ok ? null : faultText(result.fault);
    };
    expect(fault('{\n  "a": 1,\n  b: 2\n}')).toBe('Line 3, column 3: Expected a name in double quotes, found "b".');
    expect(fault('{"a": 1')).toBe("Line 1, column 8: The text ends too early: a comma or } is missing.");
    expect(fault("[1,]")).toContain("Line 1, column 4");
    expect(fault("'a'")).toContain("Expected a value");
    expect(fault('"a')).toContain("not closed");
    expect(fault("1 2")).toContain("Nothing may follow");
    expect(fault("12345678901234567890")).toContain("too long");
    expect(fault("[".repeat(300))).toContain("too deep");
  });
});
