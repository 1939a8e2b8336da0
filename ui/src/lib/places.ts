/** The screens of the page: their names, icons and keys, and the title of an address. */
import type { IconName } from "../components/Icon.svelte";

export interface Place {
  path: string;
  label: string;
  icon: IconName;
  keys: string;
}

export const PLACES: readonly Place[] = [
  { path: "runs", label: "Runs", icon: "runs", keys: "g r" },
  { path: "inbox", label: "Inbox", icon: "inbox", keys: "g i" },
  { path: "workflows", label: "Workflows", icon: "workflows", keys: "g w" },
  { path: "schedules", label: "Schedules", icon: "schedules", keys: "g s" },
  { path: "parked", label: "Parked", icon: "parked", keys: "g p" },
  { path: "workers", label: "Workers", icon: "workers", keys: "g k" },
  { path: "metrics", label: "Metrics", icon: "metrics", keys: "g m" },
];

/** What stands in an address in place of a name for what is not there yet: no id has this character. */
export const NEW = "+";

/** Name an address as the title of the window does: `order-1`, `Start order`, `Runs`. */
export function titleOf(path: readonly string[]): string {
  const [screen = "runs", name, view] = path;
  const place = PLACES.find((each) => each.path === screen);
  if (!place) return "Not found";
  if (name === undefined) return place.label;
  if (screen === "workflows" && view === "start") return `Start ${name}`;
  if (screen === "schedules" && name === NEW) return "New schedule";
  return name;
}
