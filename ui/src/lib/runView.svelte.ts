/** The run of a page: its newest form, why it is so, and a counter that tells its tabs to look again. */
import { api, part } from "../api/client";
import { openFeed, type Feed } from "../api/live";
import type { Run, Why } from "../api/types";
import { every, Loaded, throttled } from "./load.svelte";

/** Changes are followed by at most four reloads a second. */
const THROTTLE_MS = 250;
const POLL_S = 3;
const PATIENCE_MS = 200;

export class RunView {
  readonly id: string;
  readonly run: Loaded<Run>;
  readonly why: Loaded<Why>;
  /** Grows with each change of the run that was noticed. */
  changes = $state(0);
  /** The run was deleted, or never was. */
  gone = $state(false);
  /** Whether changes are told by the server; else they are asked for. */
  live = $state(false);
  #reload: () => void;

  constructor(id: string) {
    this.id = id;
    this.run = new Loaded(() => api.get<Run>(`/runs/${part(id)}`));
    this.why = new Loaded(() => api.get<Why>(`/runs/${part(id)}/why`));
    this.#reload = throttled(THROTTLE_MS, () => void this.#look());
  }

  /** Ask for the run again, at most four times a second. */
  reload(): void {
    this.#reload();
  }

  /** Take the run from the answer to what was done, so that the page shows it at once. */
  take(run: Run): void {
    if (run.run_id !== this.id) return;
    this.reload();
  }

  async #look(): Promise<void> {
    const before = this.run.value;
    await Promise.all([this.run.load(), this.why.load()]);
    this.gone = this.run.missing;
    const now = this.run.value;
    // The first answer is no change: tabs ask for themselves when they open.
    if (now && before && JSON.stringify(now) !== JSON.stringify(before)) this.changes += 1;
  }

  /** Follow the run until the returned function is called. */
  follow(): () => void {
    let feed: Feed | null = null;
    let asked = false;
    const ask = (): void => {
      asked = true;
      this.reload();
    };
    // Asked after the feed is open, nothing is missed between the two; a slow feed is not waited for.
    const patience = setTimeout(() => {
      if (!asked) ask();
    }, PATIENCE_MS);
    // A run that has ended may still be tagged, retried or deleted, so that it is followed too.
    feed = openFeed("/changes", { id_prefix: this.id }, {
      on: {
        run: (data) => {
          if ((data as Run).run_id === this.id) this.reload();
        },
        gone: (data) => {
          if ((data as { run_id: string }).run_id === this.id) this.reload();
        },
        reset: () => this.reload(),
      },
      status: (open) => {
        if (open && !this.live) ask();
        this.live = open;
      },
      refused: () => {
        this.live = false;
        if (!asked) ask();
      },
    });
    const stop = every(POLL_S, () => {
      // That a worker is back is no change of the run, so that no feed tells it.
      const unanswered = this.run.value?.error?.code === "unanswered";
      if ((!this.live || unanswered) && !this.gone) this.reload();
    });
    return () => {
      clearTimeout(patience);
      feed?.close();
      stop();
    };
  }
}
