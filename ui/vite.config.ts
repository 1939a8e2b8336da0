import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// `npm run dev` shows the page against a server that is already there: LOOM_URL=http://127.0.0.1:8080 npm run dev
const server = process.env.LOOM_URL ?? "http://127.0.0.1:8080";

interface Modules {
  getModuleInfo(id: string): { importedIds: readonly string[] } | null;
}
const entry = fileURLToPath(new URL("src/main.ts", import.meta.url));
const first = new Set<string>();

/** Whether the first page needs a module: static imports lead to it from the entry. */
function isFirst(id: string, modules: Modules): boolean {
  if (first.size === 0) {
    first.add(entry);
    for (const each of first) for (const next of modules.getModuleInfo(each)?.importedIds ?? []) first.add(next);
  }
  return first.has(id);
}

export default defineConfig({
  plugins: [svelte()],
  // Links to assets are relative, so that the page works below any prefix.
  base: "./",
  build: {
    outDir: "../src/loom/web/dist",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    // Nothing is inlined as a data: address: the policy of the server allows only files.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    // All that the first page needs is one file; the rest comes in as many as are asked for apart.
    rolldownOptions: {
      output: { codeSplitting: { groups: [{ name: (id, modules) => (isFirst(id, modules) ? "page" : null) }] } },
    },
  },
  server: {
    proxy: {
      "^/(v1|metrics|openapi.json)": { target: server, changeOrigin: true },
    },
  },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
