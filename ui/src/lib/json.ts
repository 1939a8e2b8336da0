/** Texts of JSON that people write: where they are wrong, and what a browser would change in them. */

export interface JsonFault {
  message: string;
  /** The offset of the fault in the text. */
  at: number;
  line: number;
  column: number;
}

export type JsonRead = { ok: true; value: unknown } | { ok: false; fault: JsonFault };

const SPACE = /[ \t\r\n]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

class Fault extends Error {
  constructor(
    readonly at: number,
    message: string,
  ) {
    super(message);
  }
}

/** Walks over a text as JSON.parse does, to name the place of the first fault: not all browsers tell it. */
class Scanner {
  private at = 0;

  constructor(private readonly text: string) {}

  whole(): void {
    this.value(0);
    this.take(SPACE);
    if (this.at < this.text.length) throw new Fault(this.at, "Nothing may follow the value.");
  }

  private take(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) return null;
    this.at += found[0].length;
    return found[0];
  }

  private next(): string {
    this.take(SPACE);
    return this.text[this.at] ?? "";
  }

  private fail(expected: string): never {
    const found = this.text[this.at];
    throw new Fault(this.at, found === undefined ? `The text ends too early: ${expected} is missing.` : `Expected ${expected}, found ${JSON.stringify(found)}.`);
  }

  private value(depth: number): void {
    if (depth > 200) throw new Fault(this.at, "This is nested too deep.");
    const first = this.next();
    if (first === "{") this.members(depth);
    else if (first === "[") this.elements(depth);
    else if (first === '"') this.string();
    else if (first === "-" || (first >= "0" && first <= "9")) this.number();
    else if (this.take(WORD) === null) this.fail("a value");
  }

  private string(): void {
    const begin = this.at;
    if (this.take(STRING) !== null) return;
    throw new Fault(begin, "This text in quotes is not closed, or holds a character that needs a backslash.");
  }

  private number(): void {
    const begin = this.at;
    const digits = this.take(NUMBER);
    if (digits === null) this.fail("a number");
    if (isChanged(digits)) throw new Fault(begin, "This number is too long for a browser, which would change it. Use the command instead.");
  }

  private members(depth: number): void {
    this.at += 1;
    if (this.next() === "}") {
      this.at += 1;
      return;
    }
    for (;;) {
      if (this.next() !== '"') this.fail("a name in double quotes");
      this.string();
      if (this.next() !== ":") this.fail("a colon");
      this.at += 1;
      this.value(depth + 1);
      if (this.ends("}")) return;
    }
  }

  private elements(depth: number): void {
    this.at += 1;
    if (this.next() === "]") {
      this.at += 1;
      return;
    }
    for (;;) {
      this.value(depth + 1);
      if (this.ends("]")) return;
    }
  }

  private ends(end: string): boolean {
    const next = this.next();
    if (next !== "," && next !== end) this.fail(`a comma or ${end}`);
    this.at += 1;
    return next === end;
  }
}

/** Whether a browser reads another number than the text says: integers are exact up to 2^53. */
export function isChanged(digits: string): boolean {
  return /^-?\d+$/.test(digits) && !Number.isSafeInteger(Number(digits));
}

/** Read a text as JSON, or say where it is wrong. */
export function readJson(text: string): JsonRead {
  try {
    new Scanner(text).whole();
    return { ok: true, value: JSON.parse(text) as unknown };
  } catch (thrown) {
    const at = thrown instanceof Fault ? thrown.at : 0;
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    const before = text.slice(0, at).split("\n");
    return { ok: false, fault: { message, at, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 } };
  }
}

/** A fault as one sentence with its place. */
export function faultText(fault: JsonFault): string {
  return `Line ${fault.line}, column ${fault.column}: ${fault.message}`;
}

export function pretty(value: unknown): string {
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}
