/** How a form is made from a JSON Schema: what each part is drawn as, what is typed into it, and the value this gives. Pure. */
import type { JsonSchema } from "../api/types";
import { faultText, isChanged, pretty, readJson } from "./json";

export type Kind = "text" | "number" | "boolean" | "choice" | "constant" | "object" | "list" | "map" | "json";
export type InputType = "text" | "textarea" | "password" | "date" | "time" | "datetime-local" | "email" | "url";

export interface Member {
  name: string;
  schema: unknown;
  required: boolean;
}

/** What one part of a schema is drawn as. */
export interface Plan {
  kind: Kind;
  schema: JsonSchema;
  title: string | null;
  help: string;
  /** The limits in words: `1 to 10`, `at most 80 characters`. */
  hint: string;
  nullable: boolean;
  fallback: unknown;
  input: InputType;
  integer: boolean;
  options: { text: string; value: unknown }[];
  members: Member[];
  /** The schema of a list's items or of a map's values. */
  item: unknown;
}

/** What is typed into a part. `json` stands for a text of JSON, whatever the part is drawn as otherwise. */
export type Draft =
  | { text: string }
  | { on: boolean | null }
  | { json: string }
  | { present: boolean; members: Record<string, Draft>; rest: Record<string, unknown> }
  | { items: Draft[] }
  | { entries: { name: string; draft: Draft }[] };

export interface Problem {
  /** A JSON pointer into the value of the form; empty for the whole. */
  path: string;
  message: string;
  /** Nothing is there yet: told when the form is sent, not while one types. */
  missing?: boolean;
}

const MAX_DEPTH = 12;
const LONG_NAMES = /(^|_)(text|comment|note|message|description|body|reason|prompt|content)s?$/i;

function isObject(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
}

/** Follow a local reference such as `#/$defs/Item`; null if it leads nowhere. */
function target(root: unknown, reference: string): JsonSchema | null {
  if (!reference.startsWith("#")) return null;
  let at: unknown = root;
  for (const segment of reference.slice(1).split("/").slice(1)) {
    const name = decodeURIComponent(segment).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return null;
    at = (at as Record<string, unknown>)[name];
  }
  return isObject(at) ? at : null;
}

/** Replace references and optional unions by what they mean; words beside them win over those in them. */
export function resolved(schema: unknown, root: unknown): { schema: JsonSchema; nullable: boolean } {
  let current: JsonSchema = isObject(schema) ? schema : {};
  let nullable = false;
  for (let turn = 0; turn < MAX_DEPTH; turn += 1) {
    const { $ref, allOf, anyOf, oneOf, ...own } = current;
    const union = anyOf ?? oneOf;
    if (typeof $ref === "string") {
      const found = target(root, $ref);
      if (!found) return { schema: own, nullable };
      current = { ...found, ...own };
    } else if (Array.isArray(allOf) && allOf.length === 1 && isObject(allOf[0])) {
      current = { ...allOf[0], ...own };
    } else if (Array.isArray(union)) {
      const left = union.filter((each) => !isObject(each) || each["type"] !== "null");
      if (left.length < union.length) nullable = true;
      const only = left.length === 1 ? left[0] : decimalOf(left);
      if (!isObject(only)) return { schema: left.length < union.length ? { ...own, anyOf: left } : current, nullable };
      current = { ...only, ...own };
    } else if (Array.isArray(current["type"])) {
      const left = texts(current["type"]).filter((each) => each !== "null");
      if (left.length < current["type"].length) nullable = true;
      return { schema: { ...own, type: left.length === 1 ? left[0] : left }, nullable };
    } else return { schema: current, nullable };
  }
  return { schema: {}, nullable };
}

/** Pydantic describes a Decimal as a number or a text of digits: a number is what people type. */
function decimalOf(union: unknown[]): JsonSchema | null {
  const [first, second, third] = union;
  if (third !== undefined || !isObject(first) || !isObject(second)) return null;
  return first["type"] === "number" && second["type"] === "string" && "pattern" in second ? first : null;
}

function optionsOf(schema: JsonSchema): { text: string; value: unknown }[] | null {
  const options = (values: unknown[]): { text: string; value: unknown }[] => values.map((value) => ({ text: typeof value === "string" ? value : JSON.stringify(value), value }));
  if (Array.isArray(schema["enum"])) return options(schema["enum"]);
  const union = schema["anyOf"] ?? schema["oneOf"];
  if (!Array.isArray(union) || !union.every((each) => isObject(each) && ("const" in each || Array.isArray(each["enum"])))) return null;
  return (union as JsonSchema[]).flatMap((each) => {
    if (!("const" in each)) return options(each["enum"] as unknown[]);
    return options([each["const"]]).map((option) => ({ ...option, text: typeof each["title"] === "string" ? each["title"] : option.text }));
  });
}

const INPUTS: Record<string, InputType> = { date: "date", time: "time", "date-time": "datetime-local", email: "email", uri: "url", url: "url", password: "password", textarea: "textarea" };
const FORMATS: Record<string, string> = { uuid: "a UUID", duration: "a length of time, such as PT30M", "date-time": "in your time zone", ipv4: "an IPv4 address" };

function inputOf(schema: JsonSchema, name: string): InputType {
  const named = INPUTS[String(schema["format"])];
  if (named) return named;
  if (schema["writeOnly"] === true) return "password";
  const limit = schema["maxLength"];
  return (typeof limit === "number" && limit > 200) || (LONG_NAMES.test(name) && !(typeof limit === "number" && limit <= 80)) ? "textarea" : "text";
}

function unitOf(value: number, unit: string): string {
  return unit && ` ${unit}${value === 1 ? "" : "s"}`;
}

function hintOf(schema: JsonSchema): string {
  const number = (name: string): number | null => (typeof schema[name] === "number" ? schema[name] : null);
  const range = (low: number | null, high: number | null, unit: string): string =>
    low !== null && high !== null ? `${low} to ${high}${unitOf(high, unit)}` : low !== null ? `at least ${low}${unitOf(low, unit)}` : high !== null ? `at most ${high}${unitOf(high, unit)}` : "";
  const above = number("exclusiveMinimum");
  const below = number("exclusiveMaximum");
  const least = number("minLength");
  return [
    range(number("minimum"), number("maximum"), ""),
    above === null ? "" : `more than ${above}`,
    below === null ? "" : `less than ${below}`,
    range(least === 1 ? null : least, number("maxLength"), "character"),
    range(number("minItems"), number("maxItems"), "item"),
    typeof schema["pattern"] === "string" ? `as ${schema["pattern"]}` : "",
    FORMATS[String(schema["format"])] ?? "",
  ]
    .filter(Boolean)
    .join(", ");
}

function membersOf(schema: JsonSchema): Member[] {
  const properties = isObject(schema["properties"]) ? schema["properties"] : {};
  const required = new Set(texts(schema["required"]));
  return Object.entries(properties).map(([name, each]) => ({ name, schema: each, required: required.has(name) }));
}

function kindOf(schema: JsonSchema, options: Plan["options"] | null, members: Member[]): Kind {
  if ("const" in schema) return "constant";
  if (options) return "choice";
  switch (schema["type"]) {
    case "string":
      return "text";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "array":
      return isObject(schema["items"]) && !("prefixItems" in schema) ? "list" : "json";
    default:
      if (members.length > 0 && (schema["type"] === "object" || schema["type"] === undefined)) return "object";
      if (schema["type"] !== "object") return "json";
      if (isObject(schema["additionalProperties"])) return "map";
      // An object that may have no fields at all, such as an event without any, needs none.
      return schema["additionalProperties"] !== true && (schema["additionalProperties"] === false || "properties" in schema) ? "object" : "json";
  }
}

/** Plan how a part is drawn. Parts below it are planned when they are drawn, so that a schema may refer to itself. */
export function planOf(given: unknown, root: unknown, name = "", depth = 0): Plan {
  const { schema, nullable } = resolved(given, root);
  const options = optionsOf(schema);
  const members = membersOf(schema);
  return {
    kind: depth > MAX_DEPTH ? "json" : kindOf(schema, options, members),
    schema,
    title: typeof schema["title"] === "string" ? schema["title"] : null,
    help: typeof schema["description"] === "string" ? schema["description"] : "",
    hint: hintOf(schema),
    nullable,
    fallback: schema["default"],
    input: inputOf(schema, name),
    integer: schema["type"] === "integer",
    options: "const" in schema ? [{ text: String(schema["const"]), value: schema["const"] }] : (options ?? []),
    members,
    item: schema["items"] ?? schema["additionalProperties"],
  };
}

/** Whether nobody should find the text of a form in the storage of the browser. */
export function isSecret(schema: unknown): boolean {
  return /"(format":"password|writeOnly":true)/.test(JSON.stringify(schema ?? null));
}

// ---------------------------------------------------------------- from a value to what is typed

/** Make what is typed out of a value; of none, out of the defaults. */
export function draftOf(schema: unknown, root: unknown, value: unknown, required: boolean, name = "", depth = 0): Draft {
  const plan = planOf(schema, root, name, depth);
  const shown = value === undefined ? plan.fallback : value;
  const empty = shown === undefined || shown === null;
  switch (plan.kind) {
    case "constant":
      return { text: "" };
    case "choice": {
      const index = plan.options.findIndex((option) => same(option.value, shown));
      return index < 0 && !empty ? { json: pretty(shown) } : { text: index < 0 ? "" : String(index) };
    }
    case "boolean":
      return empty || typeof shown === "boolean" ? { on: empty ? null : (shown as boolean) } : { json: pretty(shown) };
    case "text":
      return empty ? { text: "" } : typeof shown === "string" ? { text: toInput(plan.input, shown) } : { json: pretty(shown) };
    case "number":
      return empty ? { text: "" } : typeof shown === "number" ? { text: String(shown) } : { json: pretty(shown) };
    case "list":
      if (!empty && !Array.isArray(shown)) return { json: pretty(shown) };
      return { items: ((shown ?? []) as unknown[]).map((each) => draftOf(plan.item, root, each, true, name, depth + 1)) };
    case "map":
      if (!empty && !isObject(shown)) return { json: pretty(shown) };
      return { entries: Object.entries((shown ?? {}) as object).map(([key, each]) => ({ name: key, draft: draftOf(plan.item, root, each, true, key, depth + 1) })) };
    case "object": {
      if (!empty && !isObject(shown)) return { json: pretty(shown) };
      const given = isObject(shown) ? shown : {};
      const present = !empty || (required && !plan.nullable);
      const known = new Set(plan.members.map((member) => member.name));
      return {
        present,
        members: present ? membersDraft(plan, root, given, depth) : {},
        rest: Object.fromEntries(Object.entries(given).filter(([key]) => !known.has(key))),
      };
    }
    case "json":
      return { json: shown === undefined || (shown === null && !required) ? "" : pretty(shown) };
  }
}

function membersDraft(plan: Plan, root: unknown, given: Record<string, unknown>, depth: number): Record<string, Draft> {
  return Object.fromEntries(plan.members.map((member) => [member.name, draftOf(member.schema, root, given[member.name], member.required, member.name, depth + 1)]));
}

function same(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

const two = (value: number): string => String(value).padStart(2, "0");

/** A moment of JSON as an input of the browser takes it: date-times in the zone of the reader. */
export function toInput(input: InputType, text: string): string {
  if (input !== "datetime-local") return text;
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return "";
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function fromInput(input: InputType, text: string): string {
  if (input !== "datetime-local") return text;
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toISOString().replace(".000Z", "Z");
}

// ---------------------------------------------------------------- from what is typed to a value

/** Nothing: the part is left out. */
const NONE = Symbol("none");

/** Read what was typed as a value, and tell what is wrong or missing. The value of a form with nothing in it is undefined. */
export function read(schema: unknown, root: unknown, draft: Draft, required = true): { value: unknown; problems: Problem[] } {
  const problems: Problem[] = [];
  const value = part(schema, root, draft, required, "", "", 0, problems);
  return { value: value === NONE ? undefined : value, problems };
}

export function pointer(path: string, name: string | number): string {
  return `${path}/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

function part(schema: unknown, root: unknown, draft: Draft, required: boolean, path: string, name: string, depth: number, problems: Problem[]): unknown {
  const plan = planOf(schema, root, name, depth);
  const wrong: Wrong = (message, missing = false) => {
    problems.push({ path, message, missing });
    return NONE;
  };
  if ("json" in draft) return jsonPart(draft.json, required, plan, wrong);
  if ("members" in draft) {
    if (!draft.present) return nothing(plan, required, wrong);
    const value: Record<string, unknown> = { ...draft.rest };
    for (const member of plan.members) {
      const inner = draft.members[member.name];
      const read = inner ? part(member.schema, root, inner, member.required, pointer(path, member.name), member.name, depth + 1, problems) : NONE;
      if (read !== NONE) value[member.name] = read;
    }
    return value;
  }
  if ("items" in draft) {
    const items = draft.items.map((item, index) => part(plan.item, root, item, true, pointer(path, index), name, depth + 1, problems)).map((item) => (item === NONE ? null : item));
    return counted(items, items.length, plan, required, wrong);
  }
  if ("entries" in draft) return mapPart(plan, root, draft, required, path, depth, problems, wrong);
  if ("on" in draft) return draft.on ?? nothing(plan, required, wrong);
  return scalar(draft.text, plan, required, wrong);
}

type Wrong = (message: string, missing?: boolean) => typeof NONE;

/** Leave a part out, or say null where its default would come back otherwise. */
function nothing(plan: Plan, required: boolean, wrong: Wrong): unknown {
  if (plan.nullable && (required || (plan.fallback !== undefined && plan.fallback !== null))) return null;
  if (!required) return NONE;
  return wrong(plan.kind === "choice" || plan.kind === "boolean" ? "Choose one." : "Fill this in.", true);
}

function jsonPart(text: string, required: boolean, plan: Plan, wrong: Wrong): unknown {
  // An object whose fields are not known may have none.
  if (text.trim() === "") return required && plan.kind === "json" && plan.schema["type"] === "object" ? {} : nothing(plan, required, wrong);
  const result = readJson(text);
  return result.ok ? result.value : wrong(faultText(result.fault));
}

function counted(value: unknown, length: number, plan: Plan, required: boolean, wrong: Wrong): unknown {
  const isDefaultEmpty = plan.fallback === undefined || plan.fallback === null || same(plan.fallback, []) || same(plan.fallback, {});
  if (length === 0 && !required && isDefaultEmpty) return NONE;
  const { minItems, maxItems } = plan.schema;
  if (typeof minItems === "number" && length < minItems) wrong(minItems === 1 ? "Add at least one." : `Add at least ${minItems}.`, true);
  if (typeof maxItems === "number" && length > maxItems) wrong(`Keep at most ${maxItems}.`);
  return value;
}

function mapPart(plan: Plan, root: unknown, draft: { entries: { name: string; draft: Draft }[] }, required: boolean, path: string, depth: number, problems: Problem[], wrong: Wrong): unknown {
  const value: [string, unknown][] = [];
  const names = new Set<string>();
  for (const entry of draft.entries) {
    if (names.has(entry.name)) wrong(`The name “${entry.name}” is there twice.`);
    names.add(entry.name);
    const read = part(plan.item, root, entry.draft, true, pointer(path, entry.name), entry.name, depth + 1, problems);
    value.push([entry.name, read === NONE ? null : read]);
  }
  return counted(Object.fromEntries(value), value.length, plan, required, wrong);
}

function scalar(text: string, plan: Plan, required: boolean, wrong: Wrong): unknown {
  if (plan.kind === "constant") return plan.schema["const"];
  if (plan.kind === "choice") return text === "" ? nothing(plan, required, wrong) : plan.options[Number(text)]?.value;
  if (plan.kind === "number") return text.trim() === "" ? nothing(plan, required, wrong) : numberPart(text.trim(), plan, wrong);
  if (text === "") return nothing(plan, required, wrong);
  return textPart(text, plan, wrong);
}

function numberPart(text: string, plan: Plan, wrong: Wrong): unknown {
  const plain = text.replace(",", ".");
  const value = Number(plain);
  const { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below, multipleOf } = plan.schema;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) || !Number.isFinite(value)) return wrong("This is not a number.");
  if (plan.integer && !Number.isInteger(value)) return wrong("This must be a whole number.");
  if (isChanged(plain)) return wrong("This number is too long for a browser. Use the command instead.");
  if (typeof minimum === "number" && value < minimum) return wrong(`This must be ${minimum} or more.`);
  if (typeof maximum === "number" && value > maximum) return wrong(`This must be ${maximum} or less.`);
  if (typeof above === "number" && value <= above) return wrong(`This must be more than ${above}.`);
  if (typeof below === "number" && value >= below) return wrong(`This must be less than ${below}.`);
  if (plan.integer && typeof multipleOf === "number" && value % multipleOf !== 0) return wrong(`This must be a multiple of ${multipleOf}.`);
  return value;
}

const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;

/** Check what can be checked for sure. A pattern is left to the server: its dialect differs, and a bad one would hang the page. */
function textPart(text: string, plan: Plan, wrong: Wrong): unknown {
  const { minLength, maxLength, format } = plan.schema;
  const length = [...text].length;
  if (typeof minLength === "number" && length < minLength) return wrong(`This needs at least ${minLength} characters.`);
  if (typeof maxLength === "number" && length > maxLength) return wrong(`This may have at most ${maxLength} characters, and has ${length}.`);
  if (format === "uuid" && !UUID.test(text)) return wrong("This is not a UUID.");
  if (format === "email" && !/^[^@\s]+@[^@\s]+$/.test(text)) return wrong("This is not an address of e-mail.");
  if (plan.input === "datetime-local" && Number.isNaN(new Date(text).getTime())) return wrong("This is not a moment.");
  return fromInput(plan.input, text);
}

// ---------------------------------------------------------------- problems and quick answers

/** Turn places in a request, such as `/input/name`, into places in the form that filled its field `input`. */
export function problemsUnder(places: readonly Problem[], field: string): Problem[] {
  return places.map(({ path, message }) => (path === `/${field}` || path.startsWith(`/${field}/`) ? { path: path.slice(field.length + 1), message } : { path: "", message: path ? `${path}: ${message}` : message }));
}

/** Problems at a part or, of a part that draws nothing below it, in it. */
export function problemsAt(problems: readonly Problem[], path: string, isLeaf: boolean): string[] {
  return problems.filter((problem) => problem.path === path || (isLeaf && problem.path.startsWith(`${path}/`))).map((problem) => (problem.path === path ? problem.message : `${problem.path.slice(path.length)}: ${problem.message}`));
}

export interface QuickAnswer {
  label: string;
  value: Record<string, unknown>;
}

const MAX_LABEL = 40;

/** Answers for buttons: of an object whose only field is a yes or no, or a choice of up to six short ones. Null if it asks for more. */
export function quickAnswers(schema: unknown): QuickAnswer[] | null {
  if (!isObject(schema)) return null;
  const plan = planOf(schema, schema);
  if (plan.kind !== "object") return null;
  const [member, second] = plan.members.filter((each) => planOf(each.schema, schema).kind !== "constant");
  if (!member || second) return null;
  const field = planOf(member.schema, schema, member.name);
  const fixed = read(schema, schema, draftOf(schema, schema, {}, true)).value as Record<string, unknown>;
  const answer = (label: string, value: unknown): QuickAnswer => ({ label, value: { ...fixed, [member.name]: value } });
  if (field.kind === "boolean") {
    const isSure = /^(approved?|accept(ed)?|confirm(ed)?|allow(ed)?|ok)$/i.test(member.name);
    return [answer(isSure ? VERBS[member.name.toLowerCase()] ?? "Yes" : "Yes", true), answer(isSure ? "Reject" : "No", false)];
  }
  if (field.kind === "choice" && field.options.length <= 6 && field.options.every((option) => option.text.length <= MAX_LABEL)) return field.options.map((option) => answer(option.text, option.value));
  return null;
}

const VERBS: Record<string, string> = { approve: "Approve", approved: "Approve", accept: "Accept", accepted: "Accept", confirm: "Confirm", confirmed: "Confirm", allow: "Allow", allowed: "Allow", ok: "OK" };
