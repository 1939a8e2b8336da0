/** A question as people read it: its sentence, and what else came with it. */
const SENTENCES = ["prompt", "question", "text", "message", "prefix"];

export function promptOf(prompt: unknown): { text: string; rest?: unknown } {
  if (prompt === null || prompt === undefined) return { text: "" };
  if (typeof prompt === "string") return { text: prompt };
  if (typeof prompt !== "object" || Array.isArray(prompt)) return { text: "", rest: prompt };
  const name = SENTENCES.find((each) => typeof (prompt as Record<string, unknown>)[each] === "string");
  if (!name) return Object.keys(prompt).length ? { text: "", rest: prompt } : { text: "" };
  const { [name]: text, ...rest } = prompt as Record<string, unknown>;
  return { text: text as string, ...(Object.keys(rest).length ? { rest } : {}) };
}
