/** Addresses of views: `#/runs?status=failed`. Pure; router.svelte.ts holds the current one. */

export interface Route {
  /** Segments of the path, decoded. */
  path: string[];
  query: URLSearchParams;
}

export function parseHash(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  return {
    path: path.split("/").filter(Boolean).map(decodeSegment),
    query: new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)),
  };
}

/** Write the address of a view, for `href`. Empty values are left out, so that an address says only what differs. */
export function href(path: readonly string[], query?: Record<string, string | readonly string[] | null | undefined> | URLSearchParams): string {
  const parameters = query instanceof URLSearchParams ? query : new URLSearchParams();
  if (query && !(query instanceof URLSearchParams)) {
    for (const [name, value] of Object.entries(query)) {
      if (value === null || value === undefined || value === "") continue;
      for (const each of typeof value === "string" ? [value] : value) parameters.append(name, each);
    }
  }
  const text = parameters.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    // A hand-written address may hold a lone percent sign.
    return segment;
  }
}
