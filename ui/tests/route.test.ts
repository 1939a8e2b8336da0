import { describe, expect, it } from "vitest";
import { href, parseHash } from "../src/lib/route";

describe("addresses of views", () => {
  it("reads path and query", () => {
    const route = parseHash("#/runs/a%2Fb?status=failed&status=running");
    expect(route.path).toEqual(["runs", "a/b"]);
    expect(route.query.getAll("status")).toEqual(["failed", "running"]);
  });

  it("reads an empty address as no path", () => {
    expect(parseHash("").path).toEqual([]);
    expect(parseHash("#/").path).toEqual([]);
  });

  it("keeps a lone percent sign of a hand-written address", () => {
    expect(parseHash("#/runs/100%").path).toEqual(["runs", "100%"]);
  });

  it("writes what it reads", () => {
    const address = href(["runs", "order:1/ä"], { status: ["failed", "running"], tag: "a=b", empty: "" });
    const route = parseHash(address);
    expect(route.path).toEqual(["runs", "order:1/ä"]);
    expect(route.query.getAll("status")).toEqual(["failed", "running"]);
    expect(route.query.get("tag")).toBe("a=b");
    expect(route.query.has("empty")).toBe(false);
  });
});
