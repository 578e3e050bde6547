// Bundles the extension from one source tree into dist/firefox and dist/chromium. Only the manifests differ: each browser warns of
// the other's keys.
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const pages = [
  "page.css", "_locales", "icons",
  "popup/popup.html", "popup/popup.css", "options/options.html", "options/options.css",
];
const manifest = JSON.parse(await readFile("src/manifest.json", "utf8"));

function manifestOf(browser) {
  const { key, minimum_chrome_version, browser_specific_settings, ...common } = manifest;
  if (browser === "firefox") {
    // Firefox shows the badge only of buttons on its toolbar; Chromium has no place to name.
    const action = { ...common.action, default_area: "navbar" };
    return { ...common, action, browser_specific_settings, background: { scripts: ["background.js"] } };
  }
  const permissions = common.permissions.filter((name) => name !== "webRequestBlocking");
  return { ...common, key, minimum_chrome_version, permissions, background: { service_worker: "background.js" } };
}

await rm("dist", { recursive: true, force: true });
for (const browser of ["firefox", "chromium"]) {
  const outdir = `dist/${browser}`;
  await build({
    entryPoints: ["src/background.ts", "src/popup/popup.ts", "src/options/options.ts"],
    outdir,
    outbase: "src",
    bundle: true,
    format: "iife",
    target: ["firefox142", "chrome140"],
    charset: "utf8",
    logLevel: "warning",
  });
  await mkdir(outdir, { recursive: true });
  await writeFile(`${outdir}/manifest.json`, `${JSON.stringify(manifestOf(browser), null, 2)}\n`);
  for (const page of pages) await cp(`src/${page}`, `${outdir}/${page}`, { recursive: true });
}
