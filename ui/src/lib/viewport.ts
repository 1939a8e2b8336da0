/** Where one looks at a drawing: its offset and its scale. Pure. */
export interface View {
  x: number;
  y: number;
  k: number;
}

export interface Size {
  w: number;
  h: number;
}

export const LEAST = 0.08;
export const MOST = 2.5;

/** Change the scale so that a point of the window stays over the same point of the drawing. */
export function zoomed(view: View, factor: number, at: { x: number; y: number }): View {
  const k = Math.min(MOST, Math.max(LEAST, view.k * factor));
  const by = k / view.k;
  return { k, x: at.x - (at.x - view.x) * by, y: at.y - (at.y - view.y) * by };
}

/** Show the whole drawing, at most in its own size. */
export function whole(drawing: Size, window: Size): View {
  const k = Math.max(LEAST, Math.min(1, window.w / drawing.w, window.h / drawing.h));
  return { k, x: (window.w - drawing.w * k) / 2, y: (window.h - drawing.h * k) / 2 };
}

/** The scale at which a drawing fits the width, as long as it can be read. */
export function widthScale(drawing: Size, window: Size, least = 0.5): number {
  return Math.max(least, Math.min(1, window.w / drawing.w));
}

/** A drawing that can be read as a whole is shown as a whole, any other in its width. */
function openingScale(drawing: Size, window: Size): number {
  const all = whole(drawing, window).k;
  return all >= 0.7 ? all : widthScale(drawing, window);
}

/** Show a drawing in its width from the top, or around a place of interest if it is higher than the window. */
export function opening(drawing: Size, window: Size, focus: { x: number; y: number } | null): View {
  const k = openingScale(drawing, window);
  const centered = (size: number, space: number, at: number | null): number => {
    if (size * k <= space) return (space - size * k) / 2;
    return Math.min(0, Math.max(space - size * k, at === null ? 0 : space * 0.4 - at * k));
  };
  const x = drawing.w * k <= window.w ? (window.w - drawing.w * k) / 2 : centered(drawing.w, window.w, focus ? focus.x : drawing.w / 2);
  return { k, x, y: centered(drawing.h, window.h, focus ? focus.y : null) };
}

/** Move as little as needed to have a box in sight, with a margin. */
export function shown(view: View, box: { x: number; y: number; w: number; h: number }, window: Size, margin = 24): View {
  const along = (offset: number, begin: number, size: number, space: number): number => {
    const [low, high] = [begin * view.k + offset, (begin + size) * view.k + offset];
    if (size * view.k > space - 2 * margin) return margin - begin * view.k;
    if (low < margin) return offset + margin - low;
    return high > space - margin ? offset - (high - space + margin) : offset;
  };
  return { k: view.k, x: along(view.x, box.x, box.w, window.w), y: along(view.y, box.y, box.h, window.h) };
}

export type Direction = "up" | "down" | "left" | "right";

/** The nearest box in a direction: what lies straight ahead is nearer than what lies aside. */
export function neighbor<T extends { x: number; y: number; w: number; h: number }>(boxes: readonly T[], from: T, direction: Direction): T | null {
  const middle = (box: T): [number, number] => [box.x + box.w / 2, box.y + Math.min(box.h, 40) / 2];
  const [x, y] = middle(from);
  let best: T | null = null;
  let least = Infinity;
  for (const box of boxes) {
    if (box === from) continue;
    const [a, b] = middle(box);
    const [dx, dy] = [a - x, b - y];
    const ahead = direction === "up" ? -dy : direction === "down" ? dy : direction === "left" ? -dx : dx;
    const aside = Math.abs(direction === "up" || direction === "down" ? dx : dy);
    if (ahead <= 1) continue;
    const far = ahead + aside * 2.5;
    if (far < least) [least, best] = [far, box];
  }
  return best;
}
