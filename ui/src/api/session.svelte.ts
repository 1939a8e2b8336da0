/** Who is using the page, and what they may do. The server puts it into index.html; else it is asked for. */
import type { Session } from "./types";

const OPEN: Session = {
  required: false,
  authenticated: true,
  name: null,
  scopes: ["read", "start", "event", "admin"],
  workflows: null,
  csrf: null,
  read_only: false,
  version: null,
  server_time: null,
};

class SessionState {
  value = $state<Session>(OPEN);
  loaded = $state(false);
  /** Set while a request was refused with 401: the login lies over the page, whose forms stay as they are. */
  expired = $state(false);
  /** Whether the last request reached the server. */
  online = $state(true);
  /** Milliseconds to add to the clock of this machine to get that of the server. */
  clockOffset = $state(0);

  get mustLogIn(): boolean {
    return (this.value.required && !this.value.authenticated) || this.expired;
  }

  set(next: Session): void {
    this.value = { ...OPEN, ...next };
    this.loaded = true;
    this.expired = false;
    if (next.server_time) {
      const offset = Date.parse(next.server_time) - Date.now();
      // Less than two seconds is the way of the answer, not the clock.
      this.clockOffset = Math.abs(offset) > 2000 ? offset : 0;
    }
  }

  /** Whether the key has a scope, and the page is not read-only. */
  may(scope: "read" | "start" | "event" | "admin"): boolean {
    const { scopes, read_only } = this.value;
    if (scope !== "read" && read_only) return false;
    return scopes.includes(scope) || scopes.includes("admin");
  }

  /** Say why something is not offered; null if it may be done. */
  refusal(scope: "start" | "event" | "admin"): string | null {
    if (this.may(scope)) return null;
    if (this.value.read_only) return "This page is read-only: it shows a store without an engine.";
    return `Your key lacks the scope “${scope}”.`;
  }
}

export const session = new SessionState();

/** Read the session that the server wrote into the page; null if it wrote none. */
export function embeddedSession(): Session | null {
  const element = document.getElementById("loom-session");
  if (!element?.textContent) return null;
  try {
    const parsed: unknown = JSON.parse(element.textContent);
    return typeof parsed === "object" && parsed !== null && "required" in parsed ? (parsed as Session) : null;
  } catch {
    return null;
  }
}

export const OPEN_SESSION = OPEN;
