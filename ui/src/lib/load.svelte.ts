/** Data of a view: loaded, loaded again on change, and kept on the page while a newer answer is on its way. */
import { asError, ApiError } from "../api/errors";
import { BACK } from "./presence.svelte";

/** Hold the newest answer of `ask`. A failed reload keeps what was there and tells the error beside it. */
export class Loaded<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<Error | null>(null);
  loading = $state(false);
  #turn = 0;
  #ask: () => Promise<T>;

  constructor(ask: () => Promise<T>) {
    this.#ask = ask;
  }

  /** Ask again. Of two answers under way the older one is dropped. */
  async load(): Promise<void> {
    const turn = ++this.#turn;
    this.loading = true;
    try {
      const value = await this.#ask();
      if (turn !== this.#turn) return;
      this.value = value;
      this.error = null;
    } catch (thrown) {
      if (turn === this.#turn) this.error = asError(thrown);
    } finally {
      if (turn === this.#turn) this.loading = false;
    }
  }

  /** Drop what is there, because something else is looked at now. */
  clear(): void {
    this.#turn += 1;
    this.value = null;
    this.error = null;
    this.loading = false;
  }

  get missing(): boolean {
    return this.error instanceof ApiError && this.error.status === 404;
  }
}

/** Call `look` each `seconds` while the page is seen, and at once when it is seen or the server answers again. Returns what ends it. */
export function every(seconds: number, look: () => unknown): () => void {
  const tick = (): void => {
    if (!document.hidden) look();
  };
  const timer = setInterval(tick, seconds * 1000);
  document.addEventListener("visibilitychange", tick);
  addEventListener(BACK, tick);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", tick);
    removeEventListener(BACK, tick);
  };
}

/** Call `act` at most once in `milliseconds`, and once more after the last call in between. */
export function throttled(milliseconds: number, act: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  let again = false;
  return function call() {
    if (timer) {
      again = true;
      return;
    }
    act();
    timer = setTimeout(() => {
      timer = null;
      if (again) {
        again = false;
        call();
      }
    }, milliseconds);
  };
}
