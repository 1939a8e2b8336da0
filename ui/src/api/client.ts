/** Requests to the API. Addresses are relative to the page, so that any prefix works. */
import { ApiError, errorFrom, unreachable } from "./errors";
import { embeddedSession, OPEN_SESSION, session } from "./session.svelte";
import type { Session } from "./types";

export type Query = Record<string, string | number | boolean | null | undefined | readonly string[]>;

/** The address of a path of the API, such as `/runs/x`, relative to the page. */
export function apiAddress(path: string, query?: Query): string {
  return `../v1${path}${queryText(query)}`;
}

export function queryText(query?: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const each of value as string[]) parameters.append(name, each);
    else parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `?${text}` : "";
}

interface Options {
  method?: string;
  body?: unknown;
  query?: Query;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Send a request and give its answer if the server accepted it; throw an ApiError otherwise. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const method = options.method ?? "GET";
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && session.value.csrf) headers["X-Loom-CSRF"] = session.value.csrf;
  let answer: Response;
  try {
    answer = await fetch(apiAddress(path, options.query), {
      method,
      headers,
      credentials: "same-origin",
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
      ...(options.signal ? { signal: options.signal } : {}),
    });
  } catch (thrown) {
    if (thrown instanceof DOMException && thrown.name === "AbortError") throw thrown;
    session.online = false;
    throw unreachable();
  }
  session.online = true;
  if (answer.ok) return answer;
  const error = errorFrom(answer.status, await answer.text(), answer.headers);
  if (error.status === 401 && path !== "/session") session.expired = true;
  throw error;
}

async function json<T>(path: string, options: Options = {}): Promise<T> {
  const answer = await send(path, options);
  const text = await answer.text();
  return (text ? JSON.parse(text) : null) as T;
}

export const api = {
  get: <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
    json<T>(path, { ...(query ? { query } : {}), ...(signal ? { signal } : {}) }),
  post: <T>(path: string, body: unknown = {}, query?: Query): Promise<T> => json<T>(path, { method: "POST", body, ...(query ? { query } : {}) }),
  put: <T>(path: string, body: unknown): Promise<T> => json<T>(path, { method: "PUT", body }),
  delete: <T>(path: string): Promise<T> => json<T>(path, { method: "DELETE" }),
};

/** A segment of a path: names may hold any character. */
export function part(value: string): string {
  return encodeURIComponent(value);
}

/** Call `take` for each line of an NDJSON answer as it comes. */
export async function lines<T>(path: string, body: unknown, take: (line: T) => void, signal?: AbortSignal): Promise<void> {
  const answer = await send(path, { method: "POST", body, headers: { Accept: "application/x-ndjson" }, ...(signal ? { signal } : {}) });
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const parts = rest.split("\n");
    rest = parts.pop() ?? "";
    for (const line of parts) if (line.trim()) take(JSON.parse(line) as T);
    if (done) break;
  }
  if (rest.trim()) take(JSON.parse(rest) as T);
}

/** Learn who is using the page. A server without sessions is one that needs no login, or answers 401 to the rest. */
export async function loadSession(): Promise<void> {
  const embedded = embeddedSession();
  if (embedded) {
    session.set(embedded);
    return;
  }
  try {
    session.set(await api.get<Session>("/session"));
  } catch (thrown) {
    if (!(thrown instanceof ApiError)) throw thrown;
    session.set({ ...OPEN_SESSION, required: thrown.status === 401, authenticated: thrown.status !== 401 });
  }
}

export async function logIn(key: string): Promise<void> {
  session.set(await api.post<Session>("/session", { key }));
}

export async function logOut(): Promise<void> {
  await api.delete("/session");
  session.set(await api.get<Session>("/session"));
}
