/** A list of runs that stays true: pages by cursor, live changes from the feed, and polling where there is no feed. */
import { api } from "../api/client";
import { ApiError, asError } from "../api/errors";
import { openFeed, type Feed } from "../api/live";
import { session } from "../api/session.svelte";
import type { Counts, Page, Run } from "../api/types";
import { counts } from "./counts.svelte";
import { every, throttled } from "./load.svelte";
import { append, takeChanges, takeFirstPage, type ListState, type Order } from "./runs";

export const PAGE = 100;
const FLUSH_MS = 150;
const POLL_SECONDS = 4;
/** How long the list waits for the feed before it loads: what changes in between is missed by neither then. */
const FEED_MS = 400;

type ApiQuery = Record<string, string | string[]>;

export class RunList {
  rows = $state.raw<readonly Run[]>([]);
  /** Runs that came while the list showed something further down; see `showNewer`. */
  newer = $state.raw<ReadonlyMap<string, Run>>(new Map());
  loaded = $state(false);
  loading = $state(false);
  error = $state.raw<Error | null>(null);
  cursor = $state.raw<string | null>(null);
  live = $state(false);
  /** Set by the view: whether the beginning of the list is in sight. */
  atTop = $state(true);

  #query: ApiQuery = {};
  #order: Order = "-created_at";
  #turn = 0;
  #feed: Feed | null = null;
  #stopPolling: (() => void) | null = null;
  #release: (() => void) | null = null;
  #changed = new Map<string, Run>();
  #gone = new Set<string>();
  #flush = throttled(FLUSH_MS, () => this.#take());

  /** Show the runs that a query asks for. The rows before stay until the first page is there. */
  open(query: ApiQuery, order: Order): void {
    this.close();
    const turn = this.#turn;
    this.#query = query;
    this.#order = order;
    this.newer = new Map();
    this.loading = true;
    let first = true;
    const begin = (): void => {
      if (turn !== this.#turn || !first) return;
      first = false;
      void this.reload(true);
    };
    const timer = setTimeout(begin, FEED_MS);
    this.#feed = openFeed("/changes", query, {
      on: {
        run: (data) => this.#noteRun(data as Run),
        gone: (data) => this.#noteGone((data as { run_id: string }).run_id),
        counts: (data) => {
          // A feed of some workflows counts only those; the navigation counts all.
          if (query["workflow"]) return void counts.ask();
          this.#release ??= counts.hold();
          counts.take(data as Counts);
        },
        reset: () => void this.reload(),
      },
      status: (open) => {
        const again = !first && open;
        if (open) begin();
        this.#setLive(open);
        // What came while the feed was away may be missing; a resumed feed tells it too, which does no harm.
        if (again) void this.reload();
      },
      refused: begin,
    });
    this.#closeFirst = () => clearTimeout(timer);
  }
  #closeFirst: () => void = () => undefined;

  close(): void {
    this.#turn += 1;
    this.#closeFirst();
    this.#feed?.close();
    this.#feed = null;
    this.#setLive(false);
    this.#stopPolling?.();
    this.#stopPolling = null;
    this.#changed.clear();
    this.#gone.clear();
  }

  #setLive(open: boolean): void {
    this.live = open;
    if (open) {
      this.#stopPolling?.();
      this.#stopPolling = null;
      return;
    }
    this.#release?.();
    this.#release = null;
    if (this.#feed && !this.#stopPolling) this.#stopPolling = every(POLL_SECONDS, () => this.#poll());
  }

  /** Ask again, unless the answer is known: nobody is logged in, or the server does not understand the question. */
  #poll(): Promise<void> | undefined {
    const known = this.error instanceof ApiError && !this.error.transient && this.error.status < 500;
    return session.expired || (known && !this.loaded) ? undefined : this.reload();
  }

  #noteRun(run: Run): void {
    this.#gone.delete(run.run_id);
    this.#changed.set(run.run_id, run);
    this.#flush();
  }

  #noteGone(id: string): void {
    this.#changed.delete(id);
    this.#gone.add(id);
    this.#flush();
  }

  get #state(): ListState {
    return { rows: this.rows, complete: this.cursor === null, order: this.#order };
  }

  #take(): void {
    // Before the first page is there, changes wait for it.
    if (!this.loaded || this.loading) return;
    const changed = this.#changed;
    const gone = this.#gone;
    this.#changed = new Map();
    this.#gone = new Set();
    this.#merge(changed, gone);
  }

  #merge(changed: ReadonlyMap<string, Run>, gone: ReadonlySet<string>): void {
    const taken = takeChanges(this.#state, changed, gone, !this.atTop);
    this.rows = taken.rows;
    if (taken.newer.length === 0 && gone.size === 0) return;
    const newer = new Map(this.newer);
    for (const run of taken.newer) newer.set(run.run_id, run);
    for (const id of gone) newer.delete(id);
    this.newer = newer;
  }

  showNewer(): void {
    const newer = this.newer;
    this.newer = new Map();
    this.rows = takeChanges(this.#state, newer, new Set(), false).rows;
  }

  /** Ask for the first page again. With `anew` it replaces what is there. */
  async reload(anew = false): Promise<void> {
    const turn = this.#turn;
    this.loading = true;
    try {
      const page = await api.get<Page<Run>>("/runs", { ...this.#query, order: this.#order, limit: PAGE });
      if (turn !== this.#turn) return;
      this.error = null;
      if (anew || !this.loaded) {
        this.rows = page.items;
        this.cursor = page.next_cursor;
      } else {
        const { changed, gone } = takeFirstPage(this.#state, page.items, page.next_cursor === null);
        this.#merge(changed, gone);
        if (page.next_cursor === null) this.cursor = null;
      }
      this.loaded = true;
    } catch (thrown) {
      if (turn === this.#turn) this.error = asError(thrown);
    } finally {
      if (turn === this.#turn) {
        this.loading = false;
        this.#flush();
      }
    }
  }

  /** Load the next page, unless one is on its way. */
  async more(): Promise<void> {
    if (this.loading || this.cursor === null) return;
    const turn = this.#turn;
    this.loading = true;
    try {
      const page = await api.get<Page<Run>>("/runs", { ...this.#query, order: this.#order, limit: PAGE, cursor: this.cursor });
      if (turn !== this.#turn) return;
      this.rows = append(this.rows, page.items);
      this.cursor = page.next_cursor;
      this.error = null;
    } catch (thrown) {
      if (turn === this.#turn) this.error = asError(thrown);
    } finally {
      if (turn === this.#turn) {
        this.loading = false;
        this.#flush();
      }
    }
  }

  /** Show a run as an action has answered it. */
  put(run: Run): void {
    this.#merge(new Map([[run.run_id, run]]), new Set());
  }
}
