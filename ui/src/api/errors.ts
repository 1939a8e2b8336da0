/** What went wrong with a request, and what a person can do about it. */

export interface Place {
  path: string;
  message: string;
}

/** A refusal of the server (problem+json), or the lack of any answer: then `status` is 0. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly requestId: string | null;
  readonly places: Place[];
  readonly retryAfter: number | null;

  constructor(init: { status: number; code: string; title: string; detail: string; requestId?: string | null; places?: Place[]; retryAfter?: number | null }) {
    super(init.detail || init.title);
    this.name = "ApiError";
    this.status = init.status;
    this.code = init.code;
    this.title = init.title;
    this.requestId = init.requestId ?? null;
    this.places = init.places ?? [];
    this.retryAfter = init.retryAfter ?? null;
  }

  /** Whether the same request may work a little later. */
  get transient(): boolean {
    return this.status === 0 || this.status === 429 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

function placesOf(value: unknown): Place[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((each: unknown) => {
    if (typeof each !== "object" || each === null) return [];
    const { path, message } = each as Record<string, unknown>;
    return typeof path === "string" && typeof message === "string" ? [{ path, message }] : [];
  });
}

/** Read the answer of a refused request. A proxy may have answered with something else than problem+json. */
export function errorFrom(status: number, body: string, headers: { get(name: string): string | null }): ApiError {
  let problem: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed === "object" && parsed !== null) problem = parsed as Record<string, unknown>;
  } catch {
    problem = {};
  }
  const retry = Number(headers.get("Retry-After"));
  return new ApiError({
    status,
    code: text(problem["code"]) ?? `http-${status}`,
    title: text(problem["title"]) ?? `The server answered ${status}`,
    detail: text(problem["detail"]) ?? text(problem["title"]) ?? `The server answered with status ${status}.`,
    requestId: text(problem["request_id"]) ?? headers.get("X-Request-Id"),
    places: placesOf(problem["errors"]),
    retryAfter: Number.isFinite(retry) && retry > 0 ? retry : null,
  });
}

export function unreachable(): ApiError {
  return new ApiError({
    status: 0,
    code: "unreachable",
    title: "The server does not answer",
    detail: "The server cannot be reached. It may be restarting.",
  });
}

/** A file of the page that the server does not have: it has been updated since the page was opened. */
export function partMissing(): ApiError {
  return new ApiError({ status: 404, code: "part-missing", title: "A part of this page is missing", detail: "The server may have been updated since the page was opened." });
}

const ADVICE: Record<string, string> = {
  "part-missing": "Reload the page. What you typed is kept.",
  unreachable: "Check that `loom serve` is running. This page tries again by itself, and what you typed is kept.",
  unauthenticated: "Log in with a key. An operator makes one with `loom keys create NAME --scope read,event`.",
  forbidden: "Your key lacks the scope for this, or is limited to other workflows. Ask an operator for another key.",
  csrf: "The session of this page is out of date. Reload the page and try again.",
  "read-only": "This page shows a store without an engine (`loom ui`). Run the shown command, or open the page of `loom serve`.",
  "run-not-found": "It may have been deleted or pruned, or your key may not see its workflow.",
  "definition-not-found": "No worker serves this workflow, and none was stored under this name.",
  "run-finished": "The run has ended. Start one like it, fork it, or retry it if it failed.",
  "run-active": "The run is not over yet. Cancel it first.",
  "run-exists": "Choose another run id, or leave it empty to get a new one.",
  "history-gone": "This part of the journal was pruned. Choose a later tick.",
  "nothing-to-skip": "The delay is already over. Timeouts cannot be skipped.",
  limited: "Too many requests at once. Wait a moment and try again.",
  "store-unavailable": "The database does not answer. Nothing has happened; try again when it is back.",
  draining: "The server is stopping. Nothing has happened; try again when it is back.",
  "memory-exceeded": "The server is short of memory. Nothing has happened; try again later.",
  internal: "This is a fault of the server. Its log has the reason under the request id.",
  "invalid-request": "Mend what is named above and send it again.",
};

/** Say what to do about an error; null if nothing better than its own text is known. */
export function adviceFor(error: unknown): string | null {
  if (!(error instanceof ApiError)) return "Reload the page. If it happens again, this is a bug of the page.";
  const known = ADVICE[error.code];
  if (known) return known;
  if (error.status === 404) return "This server has no such thing, or is older than this page.";
  if (error.status >= 500) return "Try again. If it stays so, look into the log of the server.";
  return null;
}

/** Turn whatever was thrown into an error with a text for people. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
