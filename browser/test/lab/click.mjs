// Measures one click: prints how long the first byte and the whole file took, as one JSON object.
//
//   node click.mjs firefox|chromium PAGE SELECTOR NAME BYTES [--longhaul] [--original FILE]
//
// --longhaul: through the extension and `longhaul` of PATH; else the browser downloads by itself. --original: the file that the copy
// must equal.
import { execFileSync } from "node:child_process";
import { parseArgs } from "node:util";

import { Clicker } from "./clicker.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { longhaul: { type: "boolean" }, original: { type: "string" } },
});
const [browser, page, selector, name, bytes] = positionals;
if (!bytes) {
  console.error("usage: click.mjs firefox|chromium PAGE SELECTOR NAME BYTES [--longhaul] [--original FILE]");
  process.exit(64);
}

const program = values.longhaul ? execFileSync("which", ["longhaul"], { encoding: "utf8" }).trim() : undefined;
const clicker = await Clicker.start({ browser, program, parent: process.env.LAB_OUT });
try {
  const clicked = clicker.click(page, selector);
  const first = clicked.then(() => clicker.firstByte());
  const done = clicked.then(() => clicker.complete(name, Number(bytes)));
  const [from, begun, { at, file }] = await Promise.all([clicked, first, done]);
  if (values.original) execFileSync("cmp", [values.original, file], { stdio: "inherit" });
  const seconds = (at - from) / 1_000;
  console.log(JSON.stringify({
    first_byte_s: (begun - from) / 1_000, click_s: seconds, goodput_bps: Math.round((Number(bytes) * 8) / seconds),
  }));
} finally {
  await clicker.stop();
}
