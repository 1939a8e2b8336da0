/** Recurrences in words: cron expressions, and what the API gives of a schedule. */
import { duration } from "./format";

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MACROS: Record<string, string> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};

interface Field {
  /** Every value that it has: `*`. */
  all: boolean;
  /** How far apart the values are, of a star with a slash; 0 otherwise. */
  step: number;
  values: number[];
  /** One range without steps, such as `1-5`; null otherwise. */
  range: [number, number] | null;
}

function readField(text: string, least: number, most: number, names: readonly string[], first: number): Field | null {
  const numberOf = (word: string): number => {
    if (/^\d+$/.test(word)) return Number(word);
    const at = names.findIndex((name) => name.slice(0, 3).toLowerCase() === word.toLowerCase());
    return at < 0 ? Number.NaN : at + first;
  };
  const values = new Set<number>();
  for (const part of text.split(",")) {
    const found = /^(\*|[a-z]+|\d+)(?:-([a-z]+|\d+))?(?:\/(\d+))?$/i.exec(part);
    if (!found) return null;
    const [, from = "", to, every] = found;
    const begin = from === "*" ? least : numberOf(from);
    const end = to !== undefined ? numberOf(to) : from === "*" || every !== undefined ? most : begin;
    const step = every === undefined ? 1 : Number(every);
    if (!(begin >= least && end <= most && begin <= end && step >= 1)) return null;
    for (let value = begin; value <= end; value += step) values.add(value);
  }
  const step = /^\*\/(\d+)$/.exec(text);
  const single = /^[a-z0-9]+-[a-z0-9]+$/i.test(text);
  const sorted = [...values].sort((a, b) => a - b);
  return { all: text === "*" || text === "*/1", step: step ? Number(step[1]) : 0, values: sorted, range: single ? [sorted[0] as number, sorted.at(-1) as number] : null };
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

function listed(words: readonly (string | number)[]): string {
  return words.length < 2 ? String(words[0] ?? "") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** Say when a cron expression is due, without its time zone; null if it is none. */
export function cronWords(text: string): string | null {
  const fields = (MACROS[text.trim().toLowerCase()] ?? text.trim()).split(/\s+/);
  if (fields.length !== 5) return null;
  const [minuteText, hourText, dayText, monthText, weekdayText] = fields as [string, string, string, string, string];
  const minute = readField(minuteText, 0, 59, [], 0);
  const hour = readField(hourText, 0, 23, [], 0);
  const day = readField(dayText, 1, 31, [], 0);
  const month = readField(monthText, 1, 12, MONTHS, 1);
  const weekday = readField(weekdayText, 0, 7, DAYS, 0);
  if (!minute || !hour || !day || !month || !weekday) return null;
  const [at, hasTimes] = timeWords(minute, hour);
  const days = dayWords(day, weekday);
  const months = month.all ? "" : month.step ? `in every ${ordinal(month.step)} month` : `in ${month.range ? `${MONTHS[month.range[0] - 1]} to ${MONTHS[month.range[1] - 1]}` : listed(month.values.map((value) => MONTHS[value - 1] as string))}`;
  return [at, days || (hasTimes ? "every day" : ""), months].filter(Boolean).join(" ");
}

/** The time of the day, and whether it names times rather than a rhythm. */
function timeWords(minute: Field, hour: Field): [string, boolean] {
  const hours = hour.all ? "" : hour.step ? ` of every ${ordinal(hour.step)} hour` : hour.range ? ` from ${pad(hour.range[0])}:00 to ${pad(hour.range[1])}:59` : ` of the hours ${listed(hour.values.map((value) => pad(value)))}`;
  if (minute.all) return [`every minute${hours}`, false];
  if (minute.step) return [`every ${minute.step} minutes${hours}`, false];
  if (hour.all) return minute.values.length === 1 && minute.values[0] === 0 ? ["every hour", false] : [`at minute ${listed(minute.values)} of every hour`, false];
  if (hour.step && minute.values.length === 1) return [`every ${hour.step} hours${minute.values[0] ? ` at minute ${minute.values[0]}` : ""}`, false];
  const times = hour.values.flatMap((each) => minute.values.map((value) => `${pad(each)}:${pad(value)}`));
  if (times.length <= 6) return [`at ${listed(times)}`, true];
  return [`at minute ${listed(minute.values)}${hours}`, false];
}

function dayWords(day: Field, weekday: Field): string {
  const names = [...new Set(weekday.values.map((value) => value % 7))];
  const weekdays = weekday.range && weekday.range[0] < weekday.range[1] ? `${DAYS[weekday.range[0] % 7]} to ${DAYS[weekday.range[1] % 7]}` : listed(names.map((value) => DAYS[value] as string));
  const dates = day.step ? `every ${ordinal(day.step)} day of the month` : day.range ? `the ${ordinal(day.range[0])} to the ${ordinal(day.range[1])}` : `the ${listed(day.values.map(ordinal))}`;
  if (day.all && (weekday.all || names.length === 7)) return "";
  if (day.all) return `on ${weekdays}`;
  if (weekday.all) return `on ${dates}`;
  // Cron takes a day that either field names.
  return `on ${dates} and on ${weekdays}`;
}

function ordinal(value: number): string {
  const end = value % 100 > 10 && value % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th");
  return `${value}${end}`;
}

function numbers(value: unknown): number[] {
  return Array.isArray(value) ? value.map(Number).filter((each) => Number.isFinite(each)) : [];
}

const SECONDS: Record<string, number> = { Second: 1, Minute: 60, Hour: 3600 };

/** Say when a schedule is due: its cron, or its recurrence in the form of Logic Apps. */
export function recurrenceWords(recurrence: { readonly [name: string]: unknown } | null | undefined): string {
  if (!recurrence) return "–";
  const cron = recurrence["cron"];
  if (typeof cron === "string") return cronWords(cron) ?? cron;
  const unit = String(recurrence["frequency"] ?? "");
  const interval = Number(recurrence["interval"] ?? 1);
  const seconds = SECONDS[unit];
  const rhythm = seconds ? `every ${duration(seconds * interval)}` : `every ${interval === 1 ? unit.toLowerCase() : `${interval} ${unit.toLowerCase()}s`}`;
  const schedule = (recurrence["schedule"] ?? {}) as Record<string, unknown>;
  const hours = numbers(schedule["hours"]);
  const minutes = numbers(schedule["minutes"]);
  const times = hours.flatMap((hour) => (minutes.length ? minutes : [0]).map((minute) => `${pad(hour)}:${pad(minute)}`));
  const days = Array.isArray(schedule["weekDays"]) ? (schedule["weekDays"] as unknown[]).map(String) : [];
  const dates = numbers(schedule["monthDays"]);
  return [rhythm, days.length ? `on ${listed(days)}` : "", dates.length ? `on the ${listed(dates.map((date) => (date < -1 ? `${ordinal(-date)} last day` : date < 0 ? "last day" : ordinal(date))))}` : "", times.length ? `at ${times.length > 6 ? `${times.length} times` : listed(times)}` : minutes.length ? `at minute ${listed(minutes)}` : ""].filter(Boolean).join(" ");
}

/** Read a length of time as people write it: `90`, `90s`, `5m`, `2h`, `7d`; null if it is none. */
export function parseEvery(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(s|m|h|d|)\s*$/i.exec(text);
  if (!found) return null;
  const seconds = Number(found[1]) * ({ s: 1, m: 60, h: 3600, d: 86_400 }[(found[2] || "s").toLowerCase()] ?? 1);
  return seconds > 0 ? seconds : null;
}
