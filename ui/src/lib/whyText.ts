/** The sentence on what holds a run, with its lengths of time as they are now: an open page must not tell an old one. */
import { relative } from "./format";

const MOMENT = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC(?: \((?:in )?(?:\d+[a-z]+ ?)+(?: ?ago)?\))?/g;

export function liveSentence(sentence: string, now: number): string {
  return sentence.replace(MOMENT, (_, day: string, time: string) => `${day} ${time} UTC (${relative(`${day}T${time}Z`, now)})`);
}

/** The sentence without the error that it ends with, for where the error is shown beside it. */
export function withoutError(sentence: string, error: string | null | undefined): string {
  return error && sentence.endsWith(`: ${error}`) ? `${sentence.slice(0, -error.length - 2)}.` : sentence;
}
