// One click in a real Firefox, with pictures: the page, the popup in mid-transfer and at the end, and the report.
//
//   node demo.mjs PAGE SELECTOR NAME BYTES --longhaul PROGRAM --out DIR
import { execFileSync } from "node:child_process";
import { readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { parseArgs } from "node:util";

import { Clicker, sleep } from "./clicker.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true, options: { longhaul: { type: "string" }, out: { type: "string" } },
});
const [page, selector, name, bytes] = positionals;

/** Width and height of the window, pixels. */
const WINDOW = [640, 404];

const clicker = await Clicker.start({ browser: "firefox", program: values.longhaul, parent: values.out });
try {
  await clicker.browser.resize(...WINDOW);
  const clicked = await clicker.click(page, selector);
  const complete = clicker.complete(name, Number(bytes));
  await clicker.longhaul.until(name, (one) => one.bytes > 0.1 * Number(bytes), "a tenth has arrived");
  await clicker.browser.windowScreenshot(picture("page"));
  await popup("running");
  const { at, file } = await complete;
  execFileSync("cmp", [path.join(process.env.DEMO_SITE, name), file], { stdio: "inherit" });
  await clicker.longhaul.until(name, (one) => one.state === "done", "it is complete");
  await sleep(500);
  await popup("done");
  await compose();
  const [record] = await readdir(clicker.records);
  await clicker.longhaul.run("report", path.join(clicker.records, record), "-o", path.join(values.out, "report.html"));
  const seconds = (at - clicked) / 1_000;
  const gbit = (Number(bytes) * 8) / seconds / 1e9;
  console.log(`${(Number(bytes) / 2 ** 30).toFixed(2)} GiB in ${seconds.toFixed(1)} s from the click, ${gbit.toFixed(2)} Gbit/s; the copy equals the original.`);
} finally {
  await clicker.stop();
}

function picture(what) {
  return path.join(values.out, `${what}.png`);
}

async function popup(what) {
  await clicker.browser.openTab(clicker.browser.extensionPage("popup/popup.html"));
  await sleep(500);
  await clicker.browser.screenshot(picture(what));
}

/** Puts the window and both popups into one picture. */
async function compose() {
  const image = async (what, width, height) =>
    `<img style="object-fit: none; object-position: 0 0; width: ${width}px; height: ${height}px; border: 1px solid #889"
      src="data:image/png;base64,${await readFile(picture(what), "base64")}">`;
  const [width, height] = WINDOW;
  await clicker.browser.resize(width + 480, height + 120);
  const html = path.join(values.out, "picture.html");
  await writeFile(html, `<!doctype html><body style="margin: 12px; background: #dde3e8; display: flex; gap: 12px">
${await image("page", width, height)}
<div style="display: flex; flex-direction: column; gap: 12px">${await image("running", 402, 195)}${await image("done", 402, 195)}</div>`);
  await clicker.browser.openTab(`file://${html}`);
  await clicker.browser.screenshot(picture("demo-browser"));
}
