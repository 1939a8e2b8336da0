/** Paths of loops. A loop that goes on names its iteration too: `rooms[2]/shelves[4]`. */

/** The path of a loop without the iteration that it is in: `rooms[2]/shelves`. */
export function loopPath(path: string): string {
  return path.replace(/\[\d+\]$/, "");
}

/** The path of a loop in its flow, whatever the iterations: `rooms/shelves`. */
export function plainPath(path: string): string {
  return path.replace(/\[\d+\]/g, "");
}
