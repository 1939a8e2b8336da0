/** What became of an event that was sent, in words. */
import type { Delivery } from "../api/types";

const WORDS: Record<string, string> = {
  waiter: "and taken by what waited for it",
  step: "and taken by a step",
  kept: "and kept: nobody waits for it yet",
  inbox: "and stored: the run takes it when it is brought back",
};

export function deliveryText(name: string, answer: Delivery): string {
  if (answer.duplicate) return `${name} had come already: nothing has changed.`;
  return `${name} is sent${answer.delivered ? ` ${WORDS[answer.delivered] ?? ""}` : ""}.`;
}
