/** How two states of a run differ, as rows of paths. Pure. */

export interface Change {
  path: string;
  kind: "added" | "removed" | "changed";
  before: unknown;
  after: unknown;
}

const MOST = 200;
/** Fields that say which state it is, not what is in it. */
const LEFT_OUT = new Set(["run_id", "tick", "at"]);
/** What names an element of a list, so that one that is added in front changes no others. */
const NAMES = ["step", "path", "waiter_id", "timer", "run_id", "name", "event_type"];

type Fields = Record<string, unknown>;

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function nameOf(value: unknown, index: number): string {
  if (!isFields(value)) return String(index);
  for (const name of NAMES) if (typeof value[name] === "string" || typeof value[name] === "number") return String(value[name]);
  return String(index);
}

/** A list by the names of its elements; by their places if two have the same name. */
function byName(list: readonly unknown[]): Fields {
  const named = list.map((each, index) => [nameOf(each, index), each] as const);
  return Object.fromEntries(new Set(named.map(([name]) => name)).size === named.length ? named : list.map((each, index) => [String(index), each]));
}

/** Tell what changed from one state to the next, at most 200 rows. */
export function stateChanges(before: unknown, after: unknown): Change[] {
  const found: Change[] = [];
  compare(before, after, "", found, 0);
  return found;
}

function compare(before: unknown, after: unknown, path: string, found: Change[], depth: number): void {
  if (found.length >= MOST || before === after || JSON.stringify(before) === JSON.stringify(after)) return;
  const bothLists = Array.isArray(before) && Array.isArray(after);
  if (depth < 12 && (bothLists || (isFields(before) && isFields(after)))) {
    const left = bothLists ? byName(before) : (before as Fields);
    const right = bothLists ? byName(after as unknown[]) : (after as Fields);
    for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
      if (depth === 0 && LEFT_OUT.has(name)) continue;
      compare(left[name], right[name], path ? `${path}.${name}` : name, found, depth + 1);
    }
    return;
  }
  const kind = isEmpty(before) ? "added" : isEmpty(after) ? "removed" : "changed";
  found.push({ path, kind, before, after });
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null;
}
