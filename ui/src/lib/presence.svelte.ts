/** Whether the server is there: asked while it was not, and told to all who wait for it. */
import { api } from "../api/client";
import { session } from "../api/session.svelte";
import type { Session } from "../api/types";

/** What `window` hears when the server answers again after it was out of reach. */
export const BACK = "loom:back";
const ASK_MS = 3000;

/** Ask for the server while it is out of reach; in a component, for as long as it is there. */
export function watchServer(): void {
  $effect(() => {
    if (session.online) return;
    const timer = setInterval(() => {
      if (!document.hidden) void ask();
    }, ASK_MS);
    return () => clearInterval(timer);
  });
}

/** Ask for the session, which may be another after a restart. */
async function ask(): Promise<void> {
  try {
    const found = await api.get<Session>("/session");
    // A login lies over the page as it is; to set the session would take the page away.
    if (found.required && !found.authenticated) session.expired = true;
    else session.set(found);
  } catch {
    // It is still out of reach, which the page shows already, or it refuses everybody while it starts.
    return;
  }
  dispatchEvent(new Event(BACK));
}
