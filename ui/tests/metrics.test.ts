import { describe, expect, it } from "vitest";
import { growth, linePath, niceTop, parseMetrics, pointOf, quantile, rate, total, valuesOf } from "../src/lib/metrics";

const TEXT = `# HELP loom_runs Runs.
# TYPE loom_runs gauge
loom_runs{status="running"} 3
loom_runs{status="failed"} 1
loom_runs_owned 1
loom_step_seconds_bucket{workflow="a\\"b,c",step="s",le="0.1"} 5
loom_step_seconds_bucket{workflow="a\\"b,c",step="s",le="1.0"} 9
loom_step_seconds_bucket{workflow="a\\"b,c",step="s",le="+Inf"} 10
loom_step_seconds_sum{workflow="a\\"b,c",step="s"} 2.5
loom_step_seconds_count{workflow="a\\"b,c",step="s"} 10
loom_ticks_total 1e3 1700000000000
nonsense here {
loom_bad NaN
`;

describe("the text of metrics", () => {
  const scrape = parseMetrics(TEXT, 0);

  it("is read by name and labels", () => {
    expect(total(scrape, "loom_runs")).toBe(4);
    expect(total(scrape, "loom_runs", { status: "failed" })).toBe(1);
    expect(total(scrape, "loom_ticks_total")).toBe(1000);
    expect(total(scrape, "loom_nothing")).toBeNull();
    expect(total(scrape, "loom_bad")).toBeNull();
    expect(valuesOf(scrape, "workflow", ["loom_step_seconds_count"])).toEqual(['a"b,c']);
  });

  it("gives quantiles as Prometheus does", () => {
    expect(quantile(0.5, null, scrape, "loom_step_seconds")).toBeCloseTo(0.1);
    expect(quantile(0.7, null, scrape, "loom_step_seconds")).toBeCloseTo(0.55);
    expect(quantile(0.99, null, scrape, "loom_step_seconds")).toBe(1);
    expect(quantile(0.5, null, scrape, "loom_commit_seconds")).toBeNull();
    expect(quantile(0.5, scrape, scrape, "loom_step_seconds")).toBeNull();
  });
});

describe("two looks", () => {
  const of = (at: number, ticks: number, fast: number, slow: number) => parseMetrics(`loom_ticks_total ${ticks}\nloom_commit_seconds_bucket{le="0.01"} ${fast}\nloom_commit_seconds_bucket{le="+Inf"} ${fast + slow}\nloom_commit_seconds_count ${fast + slow}`, at);

  it("give rates", () => {
    expect(rate(of(0, 10, 0, 0), of(5000, 60, 0, 0), "loom_ticks_total")).toBe(10);
    expect(rate(of(0, 10, 0, 0), of(0, 60, 0, 0), "loom_ticks_total")).toBeNull();
  });

  it("see that a process began anew", () => {
    expect(growth(of(0, 1000, 0, 0), of(5000, 50, 0, 0), "loom_ticks_total")).toBe(50);
    expect(quantile(0.5, of(0, 0, 500, 500), of(5000, 0, 10, 0), "loom_commit_seconds")).toBeCloseTo(0.005);
  });

  it("give quantiles of what happened in between", () => {
    expect(quantile(0.5, of(0, 0, 0, 100), of(5000, 0, 10, 100), "loom_commit_seconds")).toBeCloseTo(0.005);
  });

  it("make a point, with null for what nobody measures", () => {
    const point = pointOf(parseMetrics(TEXT, 0), parseMetrics(TEXT, 5000));
    expect(point).toMatchObject({ at: 5000, running: 3, released: 2, steps: 0, commit95: null, store: null, ended: null });
  });
});

describe("charts", () => {
  it("have round tops", () => {
    expect([0, 0.3, 1, 1.2, 4, 7, 99, 1234].map(niceTop)).toEqual([1, 0.5, 1, 2, 5, 10, 100, 2000]);
  });

  it("break a line where nothing is known", () => {
    const points = [0, 5, 10, 40, 45].map((at, index) => ({ at, value: index === 1 ? null : index }));
    expect(linePath(points, (at) => at, (value) => value, 20)).toBe("M0.0 0.0h0M10.0 2.0h0M40.0 3.0h0L45.0 4.0");
  });
});
