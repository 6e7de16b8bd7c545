import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// One script and one style sheet: the export writes both into its single file.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "../src/glassformer/explorer/static",
    emptyOutDir: true,
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        assetFileNames: "page[extname]",
        codeSplitting: false,
      },
    },
  },
  test: { include: ["tests/**/*.test.ts"] },
});
