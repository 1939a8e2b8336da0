import { describe, expect, it } from "vitest";
import { PLACES, titleOf } from "../src/lib/places";
import { rank, ranked } from "../src/lib/rank";

describe("titles", () => {
  it("names what is looked at", () => {
    expect(titleOf([])).toBe("Runs");
    expect(titleOf(["runs", "order-1", "timeline"])).toBe("order-1");
    expect(titleOf(["workflows", "order", "start"])).toBe("Start order");
    expect(titleOf(["nowhere"])).toBe("Not found");
  });

  it("has keys that differ", () => {
    expect(new Set(PLACES.map((place) => place.keys)).size).toBe(PLACES.length);
  });
});

describe("rank", () => {
  it("prefers the beginning, then a word, then any place, then letters in order", () => {
    const rates = ["run list", "Go to run", "prune", "r-x-u-n"].map((text) => rank("run", text));
    expect(rates).toEqual([...rates].sort((a, b) => b - a));
    expect(new Set(rates).size).toBe(4);
    expect(rank("run", "order")).toBe(0);
  });

  it("needs every word of the query", () => {
    expect(rank("start order", "Start order")).toBeGreaterThan(0);
    expect(rank("start refund", "Start order")).toBe(0);
    expect(rank("", "anything")).toBe(1);
    expect(rank("go runs", "Runs", "go to")).toBeGreaterThan(0);
    expect(rank("or", "audit", "workflow")).toBe(0);
  });

  it("keeps the order of what fits alike", () => {
    expect(ranked("a", ["ab", "zz", "aa"], (text) => text)).toEqual(["ab", "aa"]);
  });
});
