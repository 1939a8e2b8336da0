/** A JSON Schema as rows of a table: what each field is called, what it takes, and what is said about it. */
import type { JsonSchema } from "../api/types";

export interface SchemaRow {
  /** The name as a path: `items[]`, `address.street`. */
  name: string;
  type: string;
  required: boolean;
  /** The default as JSON; null if there is none. */
  fallback: string | null;
  about: string;
}

const DEPTH = 4;
const MOST = 200;

function isObject(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Follow local references such as `#/$defs/Item`; an object without fields where one leads nowhere. */
function followed(schema: unknown, root: unknown): JsonSchema {
  let found: unknown = schema;
  for (let hops = 0; hops < 10; hops += 1) {
    if (!isObject(found)) return {};
    const reference = found["$ref"];
    if (typeof reference !== "string" || !reference.startsWith("#/")) return found;
    found = reference.slice(2).split("/").reduce<unknown>((at, step) => (isObject(at) ? at[step.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined), root);
  }
  return {};
}

/** Name what a schema takes in a few words: `text`, `list of number`, `bike | van`, `object or null`. */
export function typeText(schema: unknown, root: unknown, depth = 0): string {
  const found = followed(schema, root);
  const options = found["enum"] ?? (found["const"] === undefined ? undefined : [found["const"]]);
  if (Array.isArray(options)) return options.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(" | ");
  const choices = found["anyOf"] ?? found["oneOf"];
  if (Array.isArray(choices)) return [...new Set(choices.map((each) => typeText(each, root, depth + 1)))].join(" or ");
  const type = found["type"];
  if (Array.isArray(type)) return type.map((each) => typeText({ ...found, type: each }, root, depth)).join(" or ");
  if (type === "array") {
    const inner = depth < DEPTH ? typeText(found["items"], root, depth + 1) : "anything";
    return inner === "anything" ? "list" : `list of ${inner}`;
  }
  if (type === "string") return typeof found["format"] === "string" ? found["format"] : "text";
  if (type === "boolean") return "yes or no";
  if (type === "integer") return "whole number";
  if (type === "object" && isObject(found["additionalProperties"])) return `map of ${typeText(found["additionalProperties"], root, depth + 1)}`;
  return typeof type === "string" ? type : isObject(found["properties"]) ? "object" : "anything";
}

/** List the fields of a schema, those of objects inside it below their own row. */
export function schemaRows(schema: unknown): SchemaRow[] {
  const rows: SchemaRow[] = [];
  collect(followed(schema, schema), schema, "", 0, rows);
  return rows;
}

function collect(found: JsonSchema, root: unknown, prefix: string, depth: number, rows: SchemaRow[]): void {
  const fields = found["properties"];
  if (!isObject(fields) || depth > DEPTH) return;
  const required = Array.isArray(found["required"]) ? found["required"] : [];
  for (const [key, field] of Object.entries(fields)) {
    if (rows.length >= MOST) return;
    const inner = followed(field, root);
    const own = isObject(field) ? field : {};
    const about = own["description"] ?? inner["description"];
    const fallback = own["default"] ?? inner["default"];
    const name = prefix + key;
    rows.push({ name, type: typeText(field, root), required: required.includes(key), fallback: fallback === undefined ? null : JSON.stringify(fallback), about: typeof about === "string" ? about : "" });
    if (inner["type"] === "array") collect(followed(inner["items"], root), root, `${name}[].`, depth + 1, rows);
    else collect(inner, root, `${name}.`, depth + 1, rows);
  }
}
