/** The events of a run: which are shown, and pages of older ones. */
import { send, part } from "../api/client";
import { superseded } from "../api/live";
import type { StreamEvent } from "../api/types";

/** Events that the engine publishes for itself: `GET /stream` leaves them out unless it is told otherwise. */
export function isInternal(event: Pick<StreamEvent, "type" | "types">): boolean {
  return event.types.includes("InternalDispatchEvent");
}

/** The cursors that do not count any more, because their step ran again. */
export function supersededIn(events: readonly StreamEvent[]): Set<number> {
  const found = new Set<number>();
  for (const event of events) for (const [first, last] of superseded(event)) for (let seq = first; seq <= last; seq += 1) found.add(seq);
  return found;
}

/** Read the events from one cursor to another, both included. The stream of a run that goes on does not end by itself. */
export async function readEvents(runId: string, from: number, to: number, signal?: AbortSignal): Promise<StreamEvent[]> {
  const found: StreamEvent[] = [];
  if (to < from) return found;
  const ending = new AbortController();
  signal?.addEventListener("abort", () => ending.abort());
  const answer = await send(`/runs/${part(runId)}/stream`, {
    query: { after: from - 1, internal: true },
    headers: { Accept: "application/x-ndjson" },
    signal: ending.signal,
  });
  if (!answer.body || answer.status === 204) return found;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) found.push(JSON.parse(line) as StreamEvent);
    if (done || (found.at(-1)?.seq ?? -1) >= to) break;
  }
  await reader.cancel();
  ending.abort();
  return found.filter((event) => event.seq <= to);
}
