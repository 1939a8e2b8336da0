import { describe, expect, it } from "vitest";
import type { Run } from "../src/api/types";
import { cronWords, parseEvery, recurrenceWords } from "../src/lib/cron";
import { byReason, generalized } from "../src/lib/parked";

describe("cron in words", () => {
  it.each([
    ["* * * * *", "every minute"],
    ["*/5 * * * *", "every 5 minutes"],
    ["0 * * * *", "every hour"],
    ["15,45 * * * *", "at minute 15 and 45 of every hour"],
    ["0 7 * * *", "at 07:00 every day"],
    ["30 2 * * mon-fri", "at 02:30 on Monday to Friday"],
    ["30 2 * * 1-5", "at 02:30 on Monday to Friday"],
    ["0 9,17 * * sat,sun", "at 09:00 and 17:00 on Sunday and Saturday"],
    ["0 0 1 * *", "at 00:00 on the 1st"],
    ["0 0 1 1 *", "at 00:00 on the 1st in January"],
    ["0 0 1,15 * fri", "at 00:00 on the 1st and 15th and on Friday"],
    ["0 12 * jun-aug *", "at 12:00 every day in June to August"],
    ["*/10 9-17 * * 1-5", "every 10 minutes from 09:00 to 17:59 on Monday to Friday"],
    ["0 */6 * * *", "every 6 hours"],
    ["20 */6 * * *", "every 6 hours at minute 20"],
    ["0 0 * * 7", "at 00:00 on Sunday"],
    ["0 0 11,12,22 * *", "at 00:00 on the 11th, 12th and 22nd"],
    ["@weekly", "at 00:00 on Sunday"],
    ["@Hourly", "every hour"],
  ])("says %s", (text, words) => {
    expect(cronWords(text)).toBe(words);
  });

  it.each(["* * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "*/0 * * * *", "5-1 * * * *", "x * * * *", ""])("does not make words of %s", (text) => {
    expect(cronWords(text)).toBeNull();
  });
});

describe("recurrences in words", () => {
  it("says what the API gives", () => {
    expect(recurrenceWords({ frequency: "Second", interval: 600 })).toBe("every 10m");
    expect(recurrenceWords({ frequency: "Day", interval: 1 })).toBe("every day");
    expect(recurrenceWords({ frequency: "Week", interval: 2, schedule: { hours: [7], minutes: [0, 30], weekDays: ["Monday"] } })).toBe("every 2 weeks on Monday at 07:00 and 07:30");
    expect(recurrenceWords({ frequency: "Month", interval: 1, schedule: { monthDays: [1, -1] } })).toBe("every month on the 1st and last day");
    expect(recurrenceWords({ cron: "nonsense" })).toBe("nonsense");
    expect(recurrenceWords(null)).toBe("–");
  });

  it("reads lengths of time", () => {
    expect(["90", "90s", "5m", "2h", "7d", "1.5h"].map(parseEvery)).toEqual([90, 90, 300, 7200, 604_800, 5400]);
    expect(["", "0", "-1s", "5 weeks"].map(parseEvery)).toEqual([null, null, null, null]);
  });
});

describe("reasons of parked runs", () => {
  it("leaves out what differs from run to run", () => {
    expect(generalized("The code at hand has no step 'report', which the run has work for.", "r-1")).toBe("The code at hand has no step 'report', which the run has work for.");
    expect(generalized("Run order-17 has a state of 12,345 bytes at tick 3.", "order-17")).toBe("Run … has a state of … bytes at tick ….");
    expect(generalized("execution 1cd71b45bc3e of 9f1b2c3d-1111-2222-3333-444455556666 has ended", "")).toBe("execution … of … has ended");
    expect(generalized("step2 of Order_v3 failed", "")).toBe("step2 of Order_v3 failed");
  });

  it("groups by workflow and reason, the largest first", () => {
    const run = (run_id: string, workflow: string, parked: string): Run => ({ run_id, workflow, parked }) as Run;
    const groups = byReason([run("a", "x", "dead 5 times"), run("b", "y", "no code"), run("c", "y", "no code"), run("d", "x", "dead 6 times"), run("e", "x", "dead 7 times")], (each) => each.parked);
    expect(groups.map((group) => [group.workflow, group.text, group.runs.length])).toEqual([["x", "dead … times", 3], ["y", "no code", 2]]);
  });
});
