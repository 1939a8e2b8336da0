/** Live data: Server-Sent Events with a cursor, and how their messages are merged into what is shown. */
import { apiAddress, type Query } from "./client";

export interface Feed {
  close(): void;
}

interface FeedOptions {
  /** Named messages and what takes them; `message` is the name of those without one. */
  on: Record<string, (data: unknown, id: string) => void>;
  /** Called when the connection is there, and when it is lost. */
  status?: (open: boolean) => void;
  /** Called when the server refuses the feed for good: it ended, or this server has none. */
  refused?: () => void;
}

/** Open a feed. EventSource goes on from the last cursor by itself; a feed that was refused is tried again, slower and slower, from the same place. */
export function openFeed(path: string, query: Query, options: FeedOptions): Feed {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let failures = 0;
  let closed = false;
  let cursor = "";

  function connect(): void {
    timer = null;
    source = new EventSource(apiAddress(path, cursor ? { ...query, after: cursor } : query));
    source.onopen = () => {
      failures = 0;
      options.status?.(true);
    };
    for (const [name, take] of Object.entries(options.on)) {
      source.addEventListener(name, (message) => {
        const { data, lastEventId } = message as MessageEvent<string>;
        cursor = lastEventId || cursor;
        take(JSON.parse(data), lastEventId);
      });
    }
    source.onerror = () => {
      options.status?.(false);
      if (source?.readyState !== EventSource.CLOSED || closed) return;
      // The browser gives up on an answer that is no stream: 204 behind the end of a run, 404, 401, 503.
      options.refused?.();
      if (closed) return;
      failures += 1;
      timer = setTimeout(connect, Math.min(30_000, 1_000 * 2 ** failures));
    };
  }

  connect();
  return {
    close() {
      closed = true;
      if (timer) clearTimeout(timer);
      source?.close();
    },
  };
}

export interface Numbered {
  seq: number;
}

/** Add events to a list that is ordered by `seq`: none twice, none lost, whatever the order in which they come. */
export function mergeBySeq<T extends Numbered>(known: readonly T[], more: readonly T[]): T[] {
  const last = known.at(-1);
  if (more.length === 0) return known as T[];
  const ordered = more.every((each, index) => index === 0 || (more[index - 1] as T).seq < each.seq);
  if (ordered && (!last || (more[0] as T).seq > last.seq)) return [...known, ...more];
  const bySeq = new Map<number, T>();
  for (const each of known) bySeq.set(each.seq, each);
  for (const each of more) bySeq.set(each.seq, each);
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq);
}

/** The cursors that an entry takes back, as rows of first and last. */
export function superseded(event: { type: string; value?: unknown }): [number, number][] {
  if (event.type !== "StreamSupersededEvent") return [];
  const cursors = (event.value as { cursors?: unknown } | null)?.cursors;
  return Array.isArray(cursors) ? (cursors as [number, number][]) : [];
}

export interface Row {
  run_id: string;
  updated_at: string;
  tick: number;
}

/** Put changed rows into a list of runs: known ones in their place, new ones in front if the list shows the newest. */
export function mergeRows<T extends Row>(known: readonly T[], changed: ReadonlyMap<string, T>, gone: ReadonlySet<string>, isNew: (run: T) => boolean): { rows: T[]; added: number } {
  const left = new Map(changed);
  const rows: T[] = [];
  for (const row of known) {
    if (gone.has(row.run_id)) continue;
    const newer = left.get(row.run_id);
    left.delete(row.run_id);
    rows.push(newer && newer.tick >= row.tick ? newer : row);
  }
  const added = [...left.values()].filter((run) => !gone.has(run.run_id) && isNew(run));
  return { rows: [...added.reverse(), ...rows], added: added.length };
}
