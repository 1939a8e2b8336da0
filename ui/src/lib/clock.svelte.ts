/** One clock for all relative times of the page: it ticks each second while the page is seen. */
import { session } from "../api/session.svelte";

class Clock {
  #now = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.#now = Date.now();
    }, 1_000);
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.#now = Date.now();
    });
  }

  /** Milliseconds since 1970 by the clock of the server. */
  get now(): number {
    return this.#now + session.clockOffset;
  }
}

export const clock = new Clock();
