// Measures what an open dashboard costs a transfer over loopback: runs in turn with the page closed and with it showing the transfer.
//
//   LONGHAUL=target/release/longhaul node dashboard/test/cost.mjs [RUNS] [GIB] [LIMIT_BPS]

import { mkdtempSync, openSync, ftruncateSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, serve } from "./agent.mjs";
import { launch } from "./browsers.mjs";

const [runs, gib, limit] = [Number(process.argv[2] ?? 5), Number(process.argv[3] ?? 8), Number(process.argv[4] ?? 0)];
const binary = process.env.LONGHAUL;
const served = mkdtempSync(join(tmpdir(), "longhaul-cost-"));
ftruncateSync(openSync(join(served, "file"), "w"), gib * 2 ** 30);
const server = await serve(binary, served);
const agent = await new Agent(binary).start();
const browser = await launch("chromium");
await browser.page.goto(agent.login, { waitUntil: "domcontentloaded" });

/** Fetches the file once; returns its goodput in Gbit/s. */
async function run(name, isShown) {
  const request = { urls: [`${server.url}/file`], name, paused: true, ...(limit ? { limit_bps: limit } : {}) };
  const { transfers: [{ id }] } = await agent.api("POST", "/api/v1/transfers", request);
  // The page is loaded before the transfer begins: a load is no part of watching.
  await browser.page.goto(isShown ? `${agent.address}/#/${id}` : "about:blank", { waitUntil: "load" });
  await new Promise((done) => setTimeout(done, 2_000));
  await agent.api("POST", `/api/v1/transfers/${id}/resume`);
  for (;;) {
    await new Promise((done) => setTimeout(done, 500));
    const transfer = await agent.api("GET", `/api/v1/transfers/${id}`);
    if (transfer.state === "done") {
      rmSync(transfer.path);
      return transfer.goodput_bps / 1e9;
    }
    if (transfer.error) throw new Error(transfer.error.message);
  }
}

const goodputs = { closed: [], open: [] };
await run("warm-up", false);
for (let number = 0; number < runs; number += 1) {
  goodputs.closed.push(await run(`closed-${number}`, false));
  goodputs.open.push(await run(`open-${number}`, true));
}
const sorted = (values) => values.toSorted((a, b) => a - b);
const median = (values) => sorted(values)[Math.floor(values.length / 2)];
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
for (const [name, values] of Object.entries(goodputs)) {
  console.log(`${name}: ${values.map((value) => value.toFixed(2)).join(" ")} Gbit/s; median ${median(values).toFixed(2)}, mean ${mean(values).toFixed(2)}`);
}
console.log(`cost: median ${(100 * (1 - median(goodputs.open) / median(goodputs.closed))).toFixed(1)} %, mean ${(100 * (1 - mean(goodputs.open) / mean(goodputs.closed))).toFixed(1)} %`);
await browser.close();
await agent.end("SIGTERM");
server.stop();
rmSync(served, { recursive: true });
