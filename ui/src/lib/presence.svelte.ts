/** Whether the server is there: asked while it was not, and told to all who wait for it. */
import { api } from "../api/client";
import { session } from "../api/session.svelte";
import type { Session } from "../api/types";

/** What `window` hears when the server answers again after it was out of reach. */
export const BACK = "loom:back";
const ASK_MS = 3000;

/** Whether the server was out of reach, and its return was not told yet. */
let away = false;
let asking = false;

/** Ask for the server while it is out of reach; in a component, for as long as it is there. */
export function watchServer(): void {
  $effect(() => {
    if (session.online) {
      // Another request has found it first.
      if (away) void ask();
      return;
    }
    away = true;
    const timer = setInterval(() => {
      if (!document.hidden) void ask();
    }, ASK_MS);
    return () => clearInterval(timer);
  });
}

/** Ask for the session, which may be another after a restart. */
async function ask(): Promise<void> {
  if (asking) return;
  asking = true;
  try {
    const found = await api.get<Session>("/session");
    // A login lies over the page as it is; to set the session would take the page away.
    if (found.required && !found.authenticated) session.expired = true;
    else session.set(found);
  } catch {
    // It is still out of reach, which the page shows already, or it refuses everybody while it starts.
    if (session.online) setTimeout(() => away && void ask(), ASK_MS);
    return;
  } finally {
    asking = false;
  }
  away = false;
  dispatchEvent(new Event(BACK));
}
