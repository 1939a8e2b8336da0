/** Live counts of runs for the navigation, the chips and the title: from a screen's feed, or asked for now and then. */
import { api } from "../api/client";
import { ApiError } from "../api/errors";
import type { Counts } from "../api/types";
import { every } from "./load.svelte";

const POLL_SECONDS = 5;
/** A screen with a feed gets the counts from there: the first question waits a little for it. */
const FIRST_MS = 1000;

class CountsState {
  value = $state.raw<Counts | null>(null);
  #feeds = 0;
  #refused = false;

  take(counts: Counts): void {
    this.value = counts;
  }

  /** Say that a feed brings the counts: nobody has to ask. Returns what ends this. */
  hold(): () => void {
    this.#feeds += 1;
    return () => {
      this.#feeds -= 1;
    };
  }

  async ask(): Promise<void> {
    if (this.#feeds > 0 || this.#refused) return;
    try {
      this.take(await api.get<Counts>("/counts"));
    } catch (thrown) {
      // Badges are an extra: what is wrong with the server is told by the page. One that has no counts is not asked again.
      this.#refused = thrown instanceof ApiError && (thrown.status === 404 || thrown.status === 403);
    }
  }
}

export const counts = new CountsState();

/** Keep the counts fresh while the component is there. */
export function watchCounts(): void {
  $effect(() => {
    const first = setTimeout(() => {
      if (counts.value === null) void counts.ask();
    }, FIRST_MS);
    const stop = every(POLL_SECONDS, () => counts.ask());
    return () => {
      clearTimeout(first);
      stop();
    };
  });
}
