/** Live counts of runs for the navigation and the chips; a feed of a screen may give them too. */
import type { Counts } from "../api/types";

class CountsState {
  value = $state.raw<Counts | null>(null);

  take(counts: Counts): void {
    this.value = counts;
  }
}

export const counts = new CountsState();
