// Bundles the unit tests and runs them with node's own runner.
import { spawnSync } from "node:child_process";
import { readdir } from "node:fs/promises";
import { build } from "esbuild";

const names = (await readdir("test/unit")).filter((name) => name.endsWith(".test.ts"));
const outdir = "dist/unit";
await build({
  entryPoints: names.map((name) => `test/unit/${name}`),
  outdir,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  logLevel: "warning",
  // The modules under test name the browser's API; a test of one that calls it adds what is called.
  banner: { js: "globalThis.chrome = { runtime: { getURL: () => '' } };" },
});
const files = names.map((name) => `${outdir}/${name.replace(/\.ts$/, ".mjs")}`);
process.exit(spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1);
