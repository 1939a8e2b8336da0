/** Texts for times, lengths of time, numbers and names. */

/** Say a length of time with its two largest units: `3m 20s`, `2d 4h`. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const rest = Math.max(0, seconds);
  if (rest < 1) return `${Math.round(rest * 1000)}ms`;
  if (rest < 10) return `${trim(rest.toFixed(1))}s`;
  const whole = Math.round(rest);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "m", whole % 60, "s");
  if (whole < 86_400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "m");
  return two(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

function trim(text: string): string {
  return text.replace(/\.0$/, "");
}

function two(first: number, unit: string, second: number, smaller: string): string {
  return second && first < 100 ? `${first}${unit} ${second}${smaller}` : `${first}${unit}`;
}

/** Say how far a moment is from now: `3m ago`, `in 20s`. */
export function relative(moment: string | number, now: number): string {
  const seconds = ((typeof moment === "number" ? moment : Date.parse(moment)) - now) / 1000;
  if (Math.abs(seconds) < 1.5) return "now";
  return seconds < 0 ? `${coarse(-seconds)} ago` : `in ${coarse(seconds)}`;
}

/** One unit is enough for ages beyond a minute in lists. */
function coarse(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86_400)}d`;
}

/** A moment in full, in the zone of the reader, with milliseconds. */
export function moment(text: string | number): string {
  const date = new Date(text);
  const pad = (value: number, width = 2): string => String(value).padStart(width, "0");
  const offset = -date.getTimezoneOffset();
  const zone = offset === 0 ? "UTC" : `UTC${offset < 0 ? "-" : "+"}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${timeOfDay(text)} ${zone}`;
}

export function timeOfDay(text: string | number): string {
  const date = new Date(text);
  const pad = (value: number, width = 2): string => String(value).padStart(width, "0");
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

export function bytes(value: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let index = 0;
  let rest = value;
  while (rest >= 1024 && index < units.length - 1) {
    rest /= 1024;
    index += 1;
  }
  return `${index === 0 ? rest : trim(rest.toFixed(1))} ${units[index]}`;
}

/** The last part of a dotted name of a type: `release.Approval` is shown as `Approval`. */
export function shortType(name: string): string {
  return name.slice(name.lastIndexOf(".") + 1);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
