/**
 * What can be done now, by a name and by keys. The frame and the screens fill it; the palette, the help and the
 * keyboard read it.
 *
 * In a component: `useCommands(() => [{ id: "run.cancel", title: "Cancel this run", keys: "c", run: cancel }])`.
 * What the function reads is followed: its commands change with it, and go with the component.
 */
import { dialogOpen, isTyping, matchPress, pressOf } from "./keys";
import { toasts } from "./toasts.svelte";

export interface Command {
  id: string;
  title: string;
  /** One binding or several, as `pressOf` writes them: `c`, `g r`, `Mod+k`. */
  keys?: string | readonly string[];
  /** The heading in the palette and the help; "This screen" if nothing is said. */
  group?: string;
  /** Other words that find it in the palette. */
  words?: string;
  /** Offered by its keys alone, such as "next row": the palette leaves it out. */
  keysOnly?: boolean;
  /** Why it cannot be done now; it is shown, and does nothing. */
  refusal?: string | null;
  run: () => unknown;
}

export const SCREEN = "This screen";
/** A sequence of keys is over after this time, in milliseconds. */
const PATIENCE = 1500;

export function keysOf(command: Command): readonly string[] {
  return command.keys === undefined ? [] : typeof command.keys === "string" ? [command.keys] : command.keys;
}

class Commands {
  #lists = $state.raw<readonly (readonly Command[])[]>([]);
  /** The same, not reactive: what an effect reads while it ends is the state of before, without what others have just added. */
  #known: readonly (readonly Command[])[] = [];
  #pending: string[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;

  /** All of them; those of the frame first, then those of the screen. Of two with one id the later one counts. */
  get items(): Command[] {
    return [...new Map(this.#lists.flat().map((command) => [command.id, command])).values()];
  }

  /** Add commands; the returned function takes them away. */
  add(list: readonly Command[]): () => void {
    this.#set([...this.#known, list]);
    return () => this.#set(this.#known.filter((each) => each !== list));
  }

  #set(lists: readonly (readonly Command[])[]): void {
    this.#known = lists;
    this.#lists = lists;
  }

  /** Take a key press of the window: run what it completes. */
  press(event: KeyboardEvent): void {
    const press = event.defaultPrevented || event.isComposing ? null : pressOf(event);
    if (press === null || dialogOpen()) return;
    const typed = isTyping(event) && !press.startsWith("Mod+");
    // Enter and Space belong to the button or link that has the focus.
    const own = /^(Enter|Space)$/.test(press) && event.target instanceof Element && event.target.closest("a,button,summary,[role=option],[role=tab]") !== null;
    if (typed || own) return;
    const bindings = this.items.flatMap((command) => keysOf(command).map((keys) => [keys, command] as const));
    const { found, pending } = matchPress(this.#pending, press, bindings);
    this.#wait(pending);
    if (found || pending.length) event.preventDefault();
    if (found?.refusal) toasts.show("info", found.refusal);
    else found?.run();
  }

  #wait(pending: string[]): void {
    this.#pending = pending;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = pending.length ? setTimeout(() => (this.#pending = []), PATIENCE) : null;
  }
}

export const commands = new Commands();

/** Offer commands while this component is there. */
export function useCommands(make: () => readonly Command[]): void {
  $effect(() => commands.add(make()));
}
