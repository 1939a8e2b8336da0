/** The view that the address asks for. */
import { href, parseHash, type Route } from "./route";

class Router {
  current = $state.raw<Route>(parseHash(location.hash));

  constructor() {
    addEventListener("hashchange", () => {
      this.current = parseHash(location.hash);
    });
  }

  go(path: readonly string[], query?: Record<string, string | readonly string[] | null | undefined>): void {
    location.hash = href(path, query);
  }

  /** Change the query of this view. `replace` leaves no step in the history, for what changes while one types. */
  setQuery(change: Record<string, string | readonly string[] | null>, replace = false): void {
    const query = new URLSearchParams(this.current.query);
    for (const [name, value] of Object.entries(change)) {
      query.delete(name);
      if (value === null || value === "") continue;
      for (const each of typeof value === "string" ? [value] : value) query.append(name, each);
    }
    const address = href(this.current.path, query);
    if (replace) {
      history.replaceState(null, "", address);
      this.current = parseHash(address);
    } else location.hash = address;
  }
}

export const router = new Router();
export { href };
