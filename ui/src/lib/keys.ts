/** Keys: how a press is written, and which binding it completes. Pure, but for the two questions about the page. */

/** Whether a key press belongs to a field that one types into, and not to the page. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  // One ticks a box with Space and types nothing.
  if (target instanceof HTMLInputElement && target.type === "checkbox") return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Whether a dialog is open: keys of the page rest while one is. */
export function dialogOpen(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

export type Press = Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "shiftKey">;

/**
 * Write a press as bindings do: `j`, `?`, `X`, `Enter`, `Shift+Enter`, `Mod+k`. `Mod` is Ctrl, or Cmd on a Mac.
 * A printable key says itself whether Shift was held. Null for a modifier alone and for what the browser owns.
 */
export function pressOf(event: Press): string | null {
  const { key } = event;
  if (key === "Shift" || key === "Control" || key === "Alt" || key === "Meta" || key === "Dead") return null;
  if (event.altKey) return null;
  const printable = key.length === 1;
  const name = printable && (event.ctrlKey || event.metaKey) ? key.toLowerCase() : key === " " ? "Space" : key;
  const modifiers = [...(event.ctrlKey || event.metaKey ? ["Mod"] : []), ...(event.shiftKey && (!printable || event.ctrlKey || event.metaKey) ? ["Shift"] : [])];
  return [...modifiers, name].join("+");
}

export type Match<T> = { found: T; pending: [] } | { found: null; pending: string[] };

/**
 * Find the binding that a press completes. Bindings may be sequences such as `g r`; `pending` holds what was pressed
 * of one so far. Of two that fit the later one counts: a screen may take a key of the frame.
 */
export function matchPress<T>(pending: readonly string[], press: string, bindings: readonly (readonly [string, T])[]): Match<T> {
  for (const pressed of pending.length ? [[...pending, press], [press]] : [[press]]) {
    const text = pressed.join(" ");
    for (let index = bindings.length - 1; index >= 0; index -= 1) {
      const [keys, found] = bindings[index] as readonly [string, T];
      if (keys === text) return { found, pending: [] };
    }
    if (bindings.some(([keys]) => keys.startsWith(`${text} `))) return { found: null, pending: pressed };
  }
  return { found: null, pending: [] };
}

const NAMES: Record<string, string> = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

/** The caps to draw for a binding: `Mod+k` is `["Ctrl", "K"]`, `g r` is `["g", "r"]`. */
export function keyCaps(keys: string, mac: boolean): string[] {
  return keys.split(" ").flatMap((press) => {
    const parts = press === "+" ? ["+"] : press.split("+");
    return parts.map((part) => (part === "Mod" ? (mac ? "⌘" : "Ctrl") : (NAMES[part] ?? (parts.length > 1 && part.length === 1 ? part.toUpperCase() : part))));
  });
}
