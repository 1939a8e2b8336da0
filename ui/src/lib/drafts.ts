/** What was typed into forms and not sent yet: kept over reloads of data and of the page, for the tab and the key that typed it. */
import { session } from "../api/session.svelte";

const PREFIX = "loom-draft:";
const MAX_TEXT = 200_000;
const memory = new Map<string, unknown>();

function nameOf(key: string): string {
  return `${PREFIX}${session.value.name ?? ""}:${key}`;
}

/** The draft of a form; null if there is none. */
export function draft<T>(key: string): T | null {
  const name = nameOf(key);
  if (memory.has(name)) return memory.get(name) as T;
  try {
    const text = sessionStorage.getItem(name);
    return text === null ? null : (JSON.parse(text) as T);
  } catch {
    // A browser may forbid storage, and somebody may have written into it: then there is no draft.
    return null;
  }
}

/** Keep a draft. With `isSecret` it stays in memory, and ends with the page. */
export function keepDraft(key: string, value: unknown, isSecret = false): void {
  const name = nameOf(key);
  memory.set(name, value);
  if (isSecret) return;
  const text = JSON.stringify(value);
  if (text.length > MAX_TEXT) return;
  try {
    sessionStorage.setItem(name, text);
  } catch {
    // Storage is full or forbidden: the draft in memory is what there is.
  }
}

export function dropDraft(key: string): void {
  const name = nameOf(key);
  memory.delete(name);
  try {
    sessionStorage.removeItem(name);
  } catch {
    // A browser that forbids storage has nothing to remove.
  }
}
