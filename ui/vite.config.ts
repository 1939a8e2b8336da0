import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// `npm run dev` shows the page against a server that is already there: LOOM_URL=http://127.0.0.1:8080 npm run dev
const server = process.env.LOOM_URL ?? "http://127.0.0.1:8080";

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
  },
  server: {
    proxy: {
      "^/(v1|metrics|openapi.json)": { target: server, changeOrigin: true },
    },
  },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
