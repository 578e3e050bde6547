// Runs the dashboard in Firefox and Chromium, at the same time, against real agents and real servers: what a user does each day, or with
// --all everything that the dashboard does.
//
//   LONGHAUL=$PWD/target/release/longhaul npm run --prefix dashboard e2e
//   LONGHAUL=$PWD/target/release/longhaul npm run --prefix dashboard e2e:all
//
// Exits 0 where all is well, 1 on a failure.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Agent, serve } from "./agent.mjs";
import { launch } from "./browsers.mjs";
import { Dashboard } from "./dashboard.mjs";
import { EXPIRING, Origin } from "./origin.mjs";

const BROWSERS = (process.env.BROWSERS ?? "firefox,chromium").split(",");
const binary = resolve(process.env.LONGHAUL ?? "../target/release/longhaul");
const isAll = process.argv[2] === "--all";
const pictures = resolve(process.env.SCREENSHOTS ?? "../target/dashboard-screenshots");
mkdirSync(pictures, { recursive: true });

/** What is fetched: at LIMIT it takes a minute, so that it runs until a step has done with it, however slow the browser is. */
const FILE = randomBytes(60 * 2 ** 20);
const LIMIT = "8 Mbit/s";
const MANY = 10_000;

const served = mkdtempSync(join(tmpdir(), "longhaul-served-"));
writeFileSync(join(served, "survey.bin"), FILE);
const server = await serve(binary, served);
const survey = `${server.url}/survey.bin`;

const passed = await Promise.all(BROWSERS.map(passesIn));
server.stop();
rmSync(served, { recursive: true, force: true });
process.exit(passed.every(Boolean) ? 0 : 1);

/** Runs all steps in one browser, with an agent and an origin of its own; returns whether they pass. */
async function passesIn(name) {
  const agent = await new Agent(binary).start();
  const origin = await new Origin().start();
  try {
    await withDashboard(name, undefined, async (board) => {
      await opens(name, agent, board);
      const id = await adds(name, board);
      await watches(name, agent, board, id);
      if (isAll) await goesOn(name, agent, origin, board, id);
      await cancels(name, agent, board);
      await step(name, "nothing has complained", () => assert.deepEqual(board.complaints, []));
    });
    if (!isAll) return true;
    await looks(name, agent);
    await many(name, agent);
    return true;
  } catch (error) {
    console.error(`FAILED in ${name}: ${error.stack}`);
    return false;
  } finally {
    await agent.end("SIGTERM");
    origin.stop();
    rmSync(agent.directory, { recursive: true, force: true });
  }
}

/** A browser for the length of some steps; a picture of a failure is kept. */
async function withDashboard(name, look, steps) {
  const browser = await launch(name, look);
  const board = new Dashboard(browser);
  try {
    await steps(board);
  } catch (error) {
    await board.picture(pictures, "failure").catch(() => {});
    throw error;
  } finally {
    await browser.close();
  }
}

async function step(name, text, work) {
  const began = Date.now();
  const result = await work();
  console.log(`ok ${name}: ${text} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  return result;
}

/** The page opens, and shows that it is connected. */
async function opens(name, agent, board) {
  await step(name, "the page opens by its login URL alone", async () => {
    const refused = await fetch(`${agent.address}/api/v1/transfers`);
    assert.equal(refused.status, 401);
    await board.page.setViewport({ width: 1280, height: 900 });
    await board.page.goto(agent.address, { waitUntil: "domcontentloaded" });
    await board.until(() => !document.getElementById("banner").hidden, "the hint to sign in");
    await board.open(agent.login);
    await board.until(() => document.getElementById("banner").hidden, "no hint");
    await board.page.goto(agent.address, { waitUntil: "domcontentloaded" });
    await board.until(() => location.pathname !== "/" && document.getElementById("banner").hidden, "the session of the bare address");
    assert.equal(new URL(board.page.url()).search, "", "the token is not left in the address");
    assert.deepEqual(await board.accessibility(), []);
  });
  board.complaints.length = 0;
}

/** A slow transfer is added and seen to move; returns its number. */
function adds(name, board) {
  return step(name, "a link is added and moves", async () => {
    await board.write("#urls", "nonsense");
    await board.press("#add button[type=submit]");
    const refusal = await board.until(() => document.getElementById("add-error").textContent, "the refusal of a text that is no URL");
    assert.doesNotMatch(refusal, /GET|api/, "advice for people");
    const id = await board.add(survey, { limit: LIMIT });
    await board.state("running");
    const read = () => board.page.$eval(".progress [role=progressbar]", (bar) => Number(bar.getAttribute("aria-valuenow")));
    const first = await read();
    await board.until((before) => Number(document.querySelector(".progress [role=progressbar]").getAttribute("aria-valuenow")) > before, "progress", first);
    await board.until(() => /^1 running · 0 waiting/.test(document.getElementById("totals").textContent) && /[1-9].*bit\/s · /.test(document.title), "it in header and title");
    return id;
  });
}

/** The transfer `id` that is shown is watched, paused and resumed. */
async function watches(name, agent, board, id) {
  await step(name, "buffers, plots and figures are live", async () => {
    await board.until(() => document.querySelectorAll(".live:not([hidden]) canvas").length === 4, "four plots");
    await board.until(() => /bit/.test(document.querySelector(".tile dd").textContent), "the goodput");
    await board.until(() => /B .* B|iB/.test(document.querySelector(".buffer-application .figures").textContent), "the application buffer");
    assert.equal(await board.page.$$eval("[role=meter]", (all) => all.length), 3);
    await board.until(() => document.querySelector(".band") && document.querySelector(".why h3").textContent.includes("Limited"), "the limit");
    assert.deepEqual(await board.accessibility(), []);
  });
  await step(name, "it is paused and resumed, by button and by key", async () => {
    await board.press("[data-action=pause]");
    await board.state("paused");
    const { bytes } = await agent.api("GET", `/api/v1/transfers/${id}`);
    await board.press("[data-action=resume]");
    await board.state("running");
    await board.page.focus("#queue");
    await board.page.keyboard.press(" ");
    await board.state("paused");
    await board.page.keyboard.press(" ");
    await board.state("running");
    const later = await agent.api("GET", `/api/v1/transfers/${id}`);
    assert.ok(later.bytes >= bytes, "what was there is kept");
  });
}

/** A running transfer is cancelled, and removed from the list. */
async function cancels(name, agent, board) {
  await step(name, "one is cancelled, and removed from the list", async () => {
    const cancelled = await board.add(survey, { limit: LIMIT, output: "other/" });
    await board.state("running");
    await board.press("[data-action=cancel]");
    await board.state("cancelled");
    const files = () => readdirSync(join(agent.downloads, "other")).length;
    assert.ok(files() > 0);
    await board.press("[data-action=delete]");
    await board.until((gone) => !document.getElementById(`row-${gone}`), "its row to go", cancelled);
    assert.equal(files(), 0, "its partial file is deleted");
    const left = await agent.api("GET", "/api/v1/transfers");
    assert.ok(left.transfers.every((transfer) => transfer.id !== cancelled));
  });
}

/** What else a user does in a day, beginning with the transfer `id` that is shown. */
async function goesOn(name, agent, origin, board, id) {
  await step(name, "a reload shows the same transfer", async () => {
    await board.page.reload({ waitUntil: "domcontentloaded" });
    await board.state("running");
    assert.equal(await board.shownId(), id);
  });
  await step(name, "the agent freezes and goes on", async () => {
    agent.signal("SIGSTOP");
    await board.until(() => !document.getElementById("banner").hidden, "the notice that the agent does not answer");
    await board.state("lost");
    agent.signal("SIGCONT");
    await board.until(() => document.getElementById("banner").hidden, "the connection");
    await board.state("running");
  });
  await step(name, "the agent is killed, comes back, and the file is right", async () => {
    await agent.end("SIGKILL");
    await board.until(() => !document.getElementById("banner").hidden, "the notice that the agent is gone");
    await board.state("lost");
    assert.equal(await board.page.title(), "Lost · Longhaul");
    await board.picture(pictures, "agent-gone");
    await agent.start();
    await board.until(() => document.getElementById("banner").hidden, "the connection");
    await board.state("running", "done");
    await agent.api("PATCH", `/api/v1/transfers/${id}`, { limit_bps: null });
    await board.state("done");
    assert.ok(readFileSync(join(agent.downloads, "survey.bin")).equals(FILE), "the file");
    assert.equal((await agent.api("GET", "/api/v1/transfers")).total, 1, "nothing twice");
  });
  await step(name, "a finished one has its report", async () => {
    const href = await board.page.$eval(".actions a.primary", (link) => link.getAttribute("href"));
    assert.match(await agent.api("GET", href), /<html/);
    assert.deepEqual(await board.accessibility(), []);
    await board.picture(pictures, "done");
  });
  await step(name, "a dead link is refreshed, and the transfer goes on", async () => {
    const dead = await board.add(origin.dyingLink());
    await board.state("waiting-link");
    const { bytes } = await agent.api("GET", `/api/v1/transfers/${dead}`);
    assert.ok(bytes > 0, "a part is there");
    assert.deepEqual(await board.accessibility(), []);
    await board.picture(pictures, "dead-link");
    await board.write("#fresh-link", origin.freshLink());
    await board.press("[data-action=use-link]");
    await board.state("done");
    assert.ok(readFileSync(join(agent.downloads, "expiring.bin")).equals(EXPIRING), "the file");
  });
  await step(name, "a metalink is dropped", async () => {
    const metalink = `<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="dropped.bin"><url>${survey}</url></file></metalink>`;
    await board.page.evaluate((text) => {
      const data = new DataTransfer();
      data.items.add(new File([text], "list.meta4"));
      dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }, metalink);
    await board.until(() => document.querySelector("#transfer-name")?.textContent === "dropped.bin", "the dropped file");
    await board.state("done");
    assert.ok(readFileSync(join(agent.downloads, "dropped.bin")).equals(FILE), "the file");
  });
  await step(name, "settings are kept", async () => {
    await board.press("#open-settings");
    await board.until(() => document.querySelector("dialog[open] form"), "the dialog");
    assert.deepEqual(await board.accessibility(), []);
    await board.write("dialog input[type=number]", "5");
    await board.press("dialog .primary");
    await board.until(() => !document.querySelector("dialog[open]"), "the dialog to close");
    assert.equal((await agent.api("GET", "/api/v1/settings")).concurrent, 5);
  });
}

/** How it looks to readers with other desktops: each with a running transfer. */
async function looks(name, agent) {
  const [running] = (await agent.api("POST", "/api/v1/transfers",
    { urls: [survey], output: "looks/", limit_bps: 4_000_000 })).transfers;
  const each = [
    ["light", { language: "en-GB", dark: false }, 1280],
    ["dark", { language: "en-GB", dark: true }, 1280],
    ["narrow-dark-japanese", { language: "ja", dark: true }, 360],
    ["narrow", { language: "en-GB", dark: false }, 360],
  ];
  for (const [title, look, width] of each) {
    await step(name, `it is whole on a desktop that is ${title}`, () => withDashboard(name, look, async (board) => {
      await board.open(agent.login, width, width < 600 ? 780 : 900);
      assert.equal(await board.page.evaluate(() => document.documentElement.lang), look.language.slice(0, 2));
      assert.equal(await board.page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches), look.dark);
      assert.ok((await board.overflow()) <= 0, "wider than the window");
      await board.picture(pictures, `${title}-queue`);
      await board.press(`#row-${running.id}`);
      await board.until(() => document.querySelectorAll(".live:not([hidden]) canvas").length === 4, "four plots");
      // Curves at the rate of a watched transfer follow those that the agent has kept: they make the picture worth a look.
      await new Promise((done) => setTimeout(done, 1000));
      assert.ok((await board.overflow()) <= 0, "wider than the window");
      assert.deepEqual(await board.accessibility(), []);
      await board.picture(pictures, title);
      if (width < 600) {
        await board.page.$eval(".charts", (charts) => charts.scrollIntoView());
        await board.picture(pictures, `${title}-plots`);
      }
      assert.deepEqual(board.complaints, []);
    }));
  }
  await agent.api("POST", `/api/v1/transfers/${running.id}/cancel`, {});
}

/** A long queue costs the page no more than a short one. */
async function many(name, agent) {
  await step(name, `${MANY} transfers are shown and walked through`, async () => {
    // A schedule that lets nothing run keeps them queued.
    await agent.api("PATCH", "/api/v1/settings", { schedule: [{ days: "daily", from: "00:00", to: "00:00", concurrent: 0 }] });
    const lines = Array.from({ length: MANY }, (_, n) => `http://127.0.0.1:9/archive/image-${String(n).padStart(5, "0")}.tar`);
    await agent.api("POST", "/api/v1/transfers", { urls_text: lines.join("\n") });
    await withDashboard(name, undefined, async (board) => {
      await board.open(agent.login);
      await board.press("#filters [data-state=queued]");
      await board.until((n) => document.querySelector("[role=option]")?.getAttribute("aria-setsize") === String(n), "the first rows", MANY);
      assert.ok((await board.page.$$eval("[role=option]", (rows) => rows.length)) < 60, "only rows in view are elements");
      await board.picture(pictures, "many");
      await board.page.focus("#queue");
      await board.page.keyboard.press("End");
      await board.until((n) => document.querySelector(`[aria-posinset="${n}"]`), "the last row", MANY);
      assert.ok((await board.page.$$eval("[role=option]", (rows) => rows.length)) < 60, "only rows in view are elements");
      assert.deepEqual(await board.accessibility(), []);
    });
  });
}
