/** Looks at `/metrics` while somebody does, and what they gave in the last ten minutes; kept while the page is open. */
import { send } from "../api/client";
import { asError } from "../api/errors";
import { every } from "./load.svelte";
import { parseMetrics, pointOf, type Point, type Scrape } from "./metrics";

export const EVERY_S = 5;
export const SPAN_MS = 600_000;
/** What lies further apart is not drawn as one line. */
export const GAP_MS = 3.5 * EVERY_S * 1000;

class Sampler {
  points = $state.raw<readonly Point[]>([]);
  last = $state.raw<Scrape | null>(null);
  error = $state.raw<Error | null>(null);

  async look(): Promise<void> {
    try {
      // The figures stand beside the API, not below it.
      const answer = await send("/../metrics", { headers: { Accept: "text/plain" } });
      const now = parseMetrics(await answer.text(), Date.now());
      if (this.last && now.at - this.last.at < GAP_MS) this.points = [...this.points.filter((point) => point.at > now.at - SPAN_MS), pointOf(this.last, now)];
      this.last = now;
      this.error = null;
    } catch (thrown) {
      this.error = asError(thrown);
    }
  }

  /** Look now and every few seconds; the first point takes two looks, so the second comes soon. Returns what ends it. */
  watch(): () => void {
    void this.look();
    const second = setTimeout(() => void this.look(), 1000);
    const stop = every(EVERY_S, () => this.look());
    return () => {
      clearTimeout(second);
      stop();
    };
  }
}

export const sampler = new Sampler();
