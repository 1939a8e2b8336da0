import { describe, expect, it } from "vitest";
import { keyCaps, matchPress, pressOf, type Press } from "../src/lib/keys";

const press = (key: string, held: Partial<Press> = {}): string | null => pressOf({ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...held });

describe("presses", () => {
  it("writes keys as bindings do", () => {
    expect(press("j")).toBe("j");
    expect(press("?", { shiftKey: true })).toBe("?");
    expect(press("X", { shiftKey: true })).toBe("X");
    expect(press("Enter", { shiftKey: true })).toBe("Shift+Enter");
    expect(press("k", { ctrlKey: true })).toBe("Mod+k");
    expect(press("K", { metaKey: true, shiftKey: true })).toBe("Mod+Shift+k");
    expect(press(" ")).toBe("Space");
  });

  it("leaves modifiers alone and Alt to the browser", () => {
    expect(press("Shift", { shiftKey: true })).toBeNull();
    expect(press("f", { altKey: true })).toBeNull();
  });
});

describe("bindings", () => {
  const bindings = [["g r", "runs"], ["g i", "inbox"], ["r", "frame"], ["r", "screen"], ["?", "help"]] as const;

  it("completes a sequence", () => {
    const first = matchPress([], "g", bindings);
    expect(first).toEqual({ found: null, pending: ["g"] });
    expect(matchPress(first.pending, "i", bindings).found).toBe("inbox");
  });

  it("takes the later of two", () => {
    expect(matchPress([], "r", bindings).found).toBe("screen");
  });

  it("begins anew with a press that does not go on with the sequence", () => {
    expect(matchPress(["g"], "?", bindings)).toEqual({ found: "help", pending: [] });
    expect(matchPress(["g"], "g", bindings)).toEqual({ found: null, pending: ["g"] });
    expect(matchPress(["g"], "x", bindings)).toEqual({ found: null, pending: [] });
  });
});

describe("caps", () => {
  it("names keys for people", () => {
    expect(keyCaps("Mod+k", false)).toEqual(["Ctrl", "K"]);
    expect(keyCaps("Mod+k", true)).toEqual(["⌘", "K"]);
    expect(keyCaps("g r", false)).toEqual(["g", "r"]);
    expect(keyCaps("ArrowDown", false)).toEqual(["↓"]);
  });
});
