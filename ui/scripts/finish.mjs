// Finish a build: compress what the server sends, and record which sources it was made from.
//
// tests/unit/web/test_page_build.py computes the same digest without Node, so that a stale build is found everywhere.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { gzipSync } from "node:zlib";

const root = new URL("..", import.meta.url).pathname;
const dist = join(root, "../src/loom/web/dist");
const LEFT_OUT = new Set(["node_modules"]);

function* filesIn(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (LEFT_OUT.has(entry.name)) continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesIn(path);
    else yield path;
  }
}

/** Digest of every source by path: one line `<sha256>  <path>` each, in the order of their bytes. */
function digest() {
  const paths = [...filesIn(root)].map((path) => relative(root, path).split(sep).join("/")).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const lines = paths.map((path) => `${createHash("sha256").update(readFileSync(join(root, path))).digest("hex")}  ${path}\n`);
  return createHash("sha256").update(lines.join("")).digest("hex");
}

/**
 * What a browser loads before it shows anything: what index.html names, imports of its scripts included. That is the list
 * of runs and the inbox. A run, the other screens, and what draws graphs are a file each, loaded when first looked at.
 */
function firstLoad() {
  const html = join(dist, "index.html");
  const links = [...readFileSync(html, "utf8").matchAll(/(?:src|href)="\.\/([^"]+)"/g)];
  return new Set([html, ...links.map((match) => join(dist, match[1]))]);
}

const first = firstLoad();
let total = 0;
let later = 0;
for (const path of [...filesIn(dist)]) {
  if (!/\.(js|css|html|svg)$/.test(path)) continue;
  const packed = gzipSync(readFileSync(path), { level: 9 });
  writeFileSync(`${path}.gz`, packed);
  if (first.has(path)) total += packed.length;
  else later += packed.length;
  console.log(`${relative(dist, path)}  ${statSync(path).size} bytes, ${packed.length} gzip${first.has(path) ? "" : ", later"}`);
}
console.log(`first load: ${(total / 1024).toFixed(1)} KB gzip; later: ${(later / 1024).toFixed(1)} KB`);
if (total > 150 * 1024) throw new Error("The first load is over 150 KB.");
writeFileSync(join(dist, "sources.sha256"), `${digest()}\n`);
