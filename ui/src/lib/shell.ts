/** Commands for a terminal that do what the page does. */

/** Quote a word for a POSIX shell; plain ones stay as they are. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export function loomCommand(...words: string[]): string {
  return ["loom", ...words].map(quote).join(" ");
}

/** The address of the API as curl needs it: absolute, from that of the page. */
export function apiBase(page: string): string {
  return new URL("../v1", page.replace(/[#?].*$/, "")).href;
}

export interface Request {
  method?: string;
  path: string;
  body?: unknown;
}

/** Write a request as a curl command. `withKey` adds the header of a key, which the shell takes from $LOOM_KEY. */
export function curlCommand(page: string, request: Request, withKey: boolean): string {
  const words = ["curl -s"];
  const method = request.method ?? "GET";
  if (method !== "GET" && !(method === "POST" && request.body !== undefined)) words.push(`-X ${method}`);
  if (withKey) words.push('-H "Authorization: Bearer $LOOM_KEY"');
  if (request.body !== undefined) words.push(`--json ${quote(JSON.stringify(request.body))}`);
  words.push(quote(`${apiBase(page)}${request.path}`));
  return words.join(" ");
}
