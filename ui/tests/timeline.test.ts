import { describe, expect, it } from "vitest";
import type { Bar, Lane } from "../src/api/types";
import { barName, idleSpans, momentOf, packed, piecesOf, scaleOf, ticksOf, within, zoomed } from "../src/lib/timeline";

const START = Date.parse("2026-01-01T00:00:00Z");
const at = (seconds: number): string => new Date(START + seconds * 1000).toISOString();

function bar(begin: number, end: number | null, more: Partial<Bar> = {}): Bar {
  return { begin: at(begin), end: end === null ? null : at(end), kind: "work", attempt: 1, status: end === null ? "running" : "ok", tick: 1, iteration: null, error: null, ...more };
}

function lane(name: string, bars: Bar[]): Lane {
  return { name, kind: "step", total: bars.length, failed: 0, retries: 0, waits: 0, bars, density: null };
}

describe("the scale of time", () => {
  it("is a straight line without folds", () => {
    const scale = scaleOf({ begin: 0, end: 1000 }, 500);
    expect(scale.x(250)).toBe(125);
    expect(scale.time(125)).toBe(250);
  });

  it("gives a fold a fixed width, and stays in order", () => {
    const scale = scaleOf({ begin: 0, end: 10_000 }, 534, [{ begin: 1000, end: 6000 }]);
    expect(scale.x(1000)).toBeCloseTo(100);
    expect(scale.x(6000)).toBeCloseTo(134);
    expect(scale.x(10_000)).toBeCloseTo(534);
    for (const time of [0, 500, 1000, 3500, 6000, 8000, 10_000]) expect(scale.time(scale.x(time))).toBeCloseTo(time);
  });

  it("leaves at least half of the width to what is not folded", () => {
    const folds = Array.from({ length: 40 }, (_, index) => ({ begin: index * 100 + 10, end: index * 100 + 90 }));
    const scale = scaleOf({ begin: 0, end: 4000 }, 400, folds);
    expect(scale.x(4000)).toBeCloseTo(400);
    expect(scale.x(10)).toBeGreaterThan(2);
  });

  it("clips folds to the window", () => {
    const scale = scaleOf({ begin: 2000, end: 3000 }, 300, [{ begin: 0, end: 1000 }, { begin: 2900, end: 9000 }]);
    expect(scale.folds).toEqual([{ begin: 2900, end: 3000 }]);
  });
});

describe("ticks", () => {
  it("stand at round distances with room between", () => {
    const ticks = ticksOf(scaleOf({ begin: START, end: START + 60_000 }, 800), START);
    expect(ticks.map((tick) => tick.label)).toEqual(["0", "+10s", "+20s", "+30s", "+40s", "+50s", "+1m"]);
  });

  it("tell milliseconds deep in a run", () => {
    const ticks = ticksOf(scaleOf({ begin: START + 60_000, end: START + 60_010 }, 800), START);
    expect(ticks[0]?.label).toBe("+60.000s");
    expect(new Set(ticks.map((tick) => tick.label)).size).toBe(ticks.length);
  });

  it("differ from each other days after the begin", () => {
    const day = 86_400_000;
    const labels = ticksOf(scaleOf({ begin: START + 3 * day, end: START + 3 * day + 7_200_000 }, 800), START).map((tick) => tick.label);
    expect(labels.slice(0, 3)).toEqual(["+3d", "+3d 15m", "+3d 30m"]);
    expect(new Set(labels).size).toBe(labels.length);
  });

  it("are few for a run of many years, and none lie in a fold", () => {
    const years = ticksOf(scaleOf({ begin: START, end: START + 20 * 365 * 86_400_000 }, 400), START);
    expect(years.length).toBeLessThan(8);
    const scale = scaleOf({ begin: START, end: START + 100_000 }, 600, [{ begin: START + 10_000, end: START + 90_000 }]);
    for (const tick of ticksOf(scale, START)) {
      const time = scale.time(tick.x) - START;
      expect(time <= 10_001 || time >= 89_999).toBe(true);
    }
  });
});

describe("bars", () => {
  it("are put into as few rows as keep them apart", () => {
    const spans = [[0, 10], [5, 8], [10, 12], [9, 11]].map(([begin, end]) => ({ begin: begin!, end: end! }));
    expect(packed(spans)).toEqual({ row: [0, 1, 0, 1], rows: 2 });
    expect(packed(Array.from({ length: 20 }, () => ({ begin: 0, end: 1 })), 4).rows).toBe(4);
    expect(packed([]).rows).toBe(1);
  });

  it("end now if they have not ended", () => {
    const [piece] = piecesOf([bar(0, null)], START + 5000);
    expect(piece).toMatchObject({ begin: START, end: START + 5000, isOpen: true });
  });

  it("have names", () => {
    expect(barName(bar(0, 1.2, { status: "failed", attempt: 2 }), 0)).toBe("attempt 2, failed after 1.2s");
    expect(barName(bar(0, null, { kind: "wait" }), START + 3000)).toBe("wait, for 3s so far");
    expect(barName(bar(0, 2, { iteration: 4 }), 0)).toBe("attempt 1, iteration 4, 2s");
  });

  it("tell the moment of a tick", () => {
    const lanes = [lane("a", [bar(0, 1, { tick: 2 }), bar(5, 6, { tick: 7 })]), lane("b", [bar(3, 4, { tick: 4 })])];
    expect(momentOf(lanes, 5)).toBe(START + 3000);
    expect(momentOf(lanes, 100)).toBe(START + 5000);
    expect(momentOf(lanes, 1)).toBe(null);
  });
});

describe("idle time", () => {
  it("is where nothing works", () => {
    const lanes = [lane("a", [bar(0, 10), bar(10, 90, { kind: "wait" })]), lane("b", [bar(90, 100), bar(20, 21)])];
    const found = idleSpans(lanes, { begin: START, end: START + 100_000 }, START + 100_000);
    expect(found).toHaveLength(2);
    expect((found[0]!.begin - START) / 1000).toBeCloseTo(10.5);
    expect((found[1]!.end - START) / 1000).toBeCloseTo(89.5);
  });

  it("is none in a run that took no time", () => {
    expect(idleSpans([lane("a", [bar(0, 0)])], { begin: START, end: START + 1 }, START + 1)).toEqual([]);
    expect(idleSpans([lane("a", [bar(0, 0.01)])], { begin: START, end: START + 900 }, START + 900)).toEqual([]);
  });

  it("is none while something works all the time", () => {
    expect(idleSpans([lane("a", [bar(0, null)])], { begin: START, end: START + 1000 }, START + 1000)).toEqual([]);
  });
});

describe("windows", () => {
  const whole = { begin: 0, end: 1000 };
  it("zoom around a moment, and never out of the whole", () => {
    expect(zoomed(whole, 2, 250, whole)).toEqual({ begin: 125, end: 625 });
    expect(zoomed({ begin: 0, end: 100 }, 0.01, 50, whole)).toEqual(whole);
  });
  it("are moved back into the whole", () => {
    expect(within({ begin: 900, end: 1200 }, whole)).toEqual({ begin: 700, end: 1000 });
    expect(within({ begin: -50, end: 50 }, whole)).toEqual({ begin: 0, end: 100 });
  });
});
