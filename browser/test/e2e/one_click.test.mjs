// One click in a real browser: the download arrives through the agent, or stays with the browser where that is right.
//
//   LONGHAUL=target/release/longhaul BROWSERS=firefox,chromium node --test test/e2e/
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";

import { Chromium } from "../browsers/chromium.mjs";
import { Firefox } from "../browsers/firefox.mjs";
import { Longhaul } from "./longhaul.mjs";
import { SIZE, Site } from "./site.mjs";

const PROGRAM = path.resolve(process.env.LONGHAUL ?? "../target/release/longhaul");
const SCREENSHOTS = path.resolve(process.env.SCREENSHOTS ?? "dist/screenshots");
const BROWSERS = { firefox: Firefox, chromium: Chromium };
const asked = (process.env.BROWSERS ?? "firefox,chromium").split(",");

for (const name of asked) describe(name, { timeout: 600_000 }, () => clicks(BROWSERS[name]));

function clicks(Browser) {
  let folder, home, downloads, site, longhaul, browser;

  before(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), "longhaul-click-"));
    home = path.join(folder, "home");
    // What browsers and the agent both save to.
    downloads = path.join(home, "Downloads");
    for (const dir of [downloads, `${home}/run`, `${home}/.mozilla`, Chromium.userDataDir(home), SCREENSHOTS]) {
      await mkdir(dir, { recursive: true, mode: 0o700 });
    }
    site = await Site.start(folder);
    longhaul = new Longhaul(PROGRAM, home);
    await longhaul.run("browser", "install", "--user-data-dir", Chromium.userDataDir(home));
    browser = await launch();
    await browser.open(`${site.url}/index.html`);
  });

  after(async () => {
    await browser?.close();
    await longhaul?.run("agent", "stop").catch(() => undefined);
    await site?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const launch = () => Browser.launch({ home, downloads, extension: "dist" });

  /** Clicks a link of the site's page. */
  async function click(id) {
    await browser.open(`${site.url}/index.html`);
    await browser.click(`#${id}`);
  }

  /** Expects that the agent has fetched the file, whole and right. */
  async function expectTaken(file) {
    const transfer = await longhaul.until(file, (one) => one.state === "done", "it is complete");
    assert.equal(transfer.bytes, SIZE);
    assert.equal(await sha256(transfer.path), site.digest);
    return transfer;
  }

  /** Expects that the browser itself has saved the file, and that the agent has none of it. */
  async function expectKept(file) {
    await eventually(`the browser saves ${file}`, async () => {
      const saved = path.join(downloads, file);
      return existsSync(saved) && (await stat(saved)).size === SIZE;
    });
    assert.equal(await sha256(path.join(downloads, file)), site.digest);
    const taken = (await longhaul.transfers()).filter((one) => one.name === file);
    assert.deepEqual(taken, [], "the agent keeps nothing of it");
  }

  async function openPopup() {
    await browser.openTab(browser.extensionPage("popup/popup.html"));
  }

  const row = (id) => `[data-transfer="${id}"]`;

  test("check finds the browsers connected", async () => {
    assert.match(await longhaul.run("browser", "check", "--user-data-dir", Chromium.userDataDir(home)), /connected/);
  });

  test("large link arrives through the agent, verified", async () => {
    await click("plain");
    await expectTaken("plain.bin");
  });

  test("cookie that the page cannot read is forwarded", async () => {
    await click("guarded");
    await expectTaken("guarded.bin");
  });

  test("link in a new tab", async () => {
    await click("blank");
    await expectTaken("blank.bin");
  });

  test("link with a download name", async () => {
    await click("named");
    await eventually("either has it", async () => {
      const names = (await longhaul.transfers()).map((one) => one.name);
      return names.includes("given name.bin") || names.includes("named.bin");
    });
  });

  test("name with folders stays in the download folder", async () => {
    await click("evil");
    await eventually("the file is there", async () => (await longhaul.transfers()).some((one) => one.name.endsWith("bashrc") && one.state === "done"));
    const transfer = (await longhaul.transfers()).find((one) => one.name.endsWith("bashrc"));
    assert.equal(path.dirname(transfer.path), downloads);
    assert.ok(!existsSync(path.join(home, ".bashrc")));
  });

  test("link that works once stays with the browser", async () => {
    await click("once");
    await expectKept("once.bin");
  });

  test("result of a POST stays with the browser", async () => {
    await click("post");
    await expectKept("posted.bin");
    assert.equal(site.requests.filter((one) => one === "POST /app/post").length, 1);
  });

  test("link without ranges stays with the browser", async () => {
    await click("no-ranges");
    await expectKept("no-ranges.bin");
  });

  test("blob: and data: stay with the browser", async () => {
    const before = (await longhaul.transfers()).length;
    await click("blob");
    await eventually("the blob is saved", () => existsSync(path.join(downloads, "blob.bin")));
    await click("data");
    await eventually("the data is saved", () => existsSync(path.join(downloads, "data.bin")));
    assert.equal((await longhaul.transfers()).length, before);
  });

  test("password of the page is forwarded where the browser gives it, and the file arrives in any case", async () => {
    const { host } = new URL(site.url);
    await browser.open(`http://anna:secret@${host}/index.html`);
    await browser.evaluate(`document.getElementById("basic").href = "http://anna:secret@${host}/basic.bin"`);
    await browser.click("#basic");
    await eventually("the file is there", async () => {
      const transfers = await longhaul.transfers();
      const saved = path.join(downloads, "basic.bin");
      return transfers.some((one) => one.name === "basic.bin" && one.state === "done") ||
        (existsSync(saved) && (await stat(saved)).size === SIZE);
    });
  });

  test("pause and resume in the popup", async () => {
    await click("slow");
    const { id } = await longhaul.until("slow.bin", (one) => one.state === "running" && one.bytes > 0, "it runs");
    await browser.reload();
    await openPopup();
    await browser.click(`${row(id)} [data-action="pause"]`);
    const paused = await longhaul.until("slow.bin", (one) => one.state === "paused", "it pauses");
    await browser.screenshot(path.join(SCREENSHOTS, `${Browser.name.toLowerCase()}-paused.png`));
    await browser.click(`${row(id)} [data-action="resume"]`);
    const resumed = await longhaul.until("slow.bin", (one) => one.state === "running" && one.bytes > paused.bytes, "it goes on");
    assert.ok(resumed.bytes < SIZE);
    await browser.screenshot(path.join(SCREENSHOTS, `${Browser.name.toLowerCase()}-running.png`));
    await expectTaken("slow.bin");
  });

  test("expired link is refreshed by one click, and the partial continues", async () => {
    site.expired = false;
    await browser.open(`${site.url}/app/signed-page`);
    await browser.click("#signed");
    await longhaul.until("signed.bin", (one) => one.state === "running" && one.bytes > 4 * 1024 * 1024, "it runs");
    site.expired = true;
    const waiting = await longhaul.until("signed.bin", (one) => one.state === "waiting-link", "it asks for a link");
    await openPopup();
    await browser.click(`${row(waiting.id)} [data-action="open-dead-link"]`);
    await eventually("the page is open", async () => {
      const tabs = await browser.tabs();
      await browser.switchTo(tabs.at(-1));
      return (await browser.url()).endsWith("/app/signed-page");
    });
    await browser.click("#signed");
    const done = await expectTaken("signed.bin");
    assert.equal(done.id, waiting.id, "the same transfer");
  });

  test("agent killed in mid-transfer comes back and completes", async () => {
    await click("slow");
    await eventually("a second one runs", async () => (await longhaul.transfers()).some((one) => one.name.startsWith("slow") && one.state === "running" && one.bytes > 0));
    const agent = Number((await longhaul.run("agent", "status", "--json").then(JSON.parse)).pid);
    process.kill(agent, "SIGKILL");
    // The popup asks the host, which starts the agent.
    await openPopup();
    await eventually("it is complete", async () => {
      const transfers = await longhaul.transfers().catch(() => []);
      const last = transfers.findLast((one) => one.name.startsWith("slow"));
      return last?.state === "done" && (await sha256(last.path)) === site.digest;
    });
  });

  test("browser killed in mid-transfer: the transfer completes", async () => {
    const before = (await longhaul.transfers()).at(-1).id;
    await click("slow");
    const running = () => longhaul.transfers().then((all) => all.find((one) => one.id > before && one.bytes > 0));
    await eventually("it runs", async () => Boolean(await running()));
    browser.kill();
    await eventually("it is complete", async () => (await running())?.state === "done");
    assert.equal(await sha256((await running()).path), site.digest);
    // What is left of the profile is of no use to a fresh session.
    for (const profile of ["firefox-profile", "chromium-profile"]) await rm(path.join(home, profile), { recursive: true, force: true });
    await longhaul.run("browser", "install", "--user-data-dir", Chromium.userDataDir(home));
  });

  test("without the program the browser downloads by itself, and the popup says what to do", async () => {
    await longhaul.run("browser", "uninstall", "--user-data-dir", Chromium.userDataDir(home));
    browser = await launch();
    await click("plain");
    await eventually("the browser saves it", async () => (await readdir(downloads)).filter((file) => file.startsWith("plain")).length > 1 );
    await openPopup();
    await eventually("the popup has the command", () => browser.evaluate(`return document.body.textContent.includes("longhaul browser install")`));
    await browser.screenshot(path.join(SCREENSHOTS, `${Browser.name.toLowerCase()}-not-installed.png`));
  });
}

async function sha256(file) {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest("hex");
}

async function eventually(what, holds, timeout = 60_000) {
  const end = Date.now() + timeout;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
