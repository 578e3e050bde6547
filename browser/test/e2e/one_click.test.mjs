// One click in a real browser, in all its cases: the download arrives through the agent, or stays with the browser where that is right.
//
//   LONGHAUL=target/release/longhaul BROWSERS=firefox,chromium node --test test/e2e/
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, rm, stat } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";

import { eventually, inEachBrowser, sha256 } from "./session.mjs";
import { SIZE } from "./site.mjs";

const row = (id) => `[data-transfer="${id}"]`;

inEachBrowser((session) => {
  test("cookie that the page cannot read is forwarded", async () => {
    await session.click("guarded");
    await session.expectTaken("guarded.bin");
  });

  test("link in a new tab", async () => {
    await session.click("blank");
    await session.expectTaken("blank.bin");
  });

  test("link with a download name", async () => {
    await session.click("named");
    // To its end: Firefox may drop a page that is opened while it gives the download up.
    await eventually("the file is there", async () => {
      const transfers = await session.longhaul.transfers();
      return transfers.some((one) => ["given name.bin", "named.bin"].includes(one.name) && one.state === "done");
    });
  });

  test("name with folders stays in the download folder", async () => {
    await session.click("evil");
    await eventually("the file is there", async () => (await session.longhaul.transfers()).some((one) => one.name.endsWith("bashrc") && one.state === "done"));
    const transfer = (await session.longhaul.transfers()).find((one) => one.name.endsWith("bashrc"));
    assert.equal(path.dirname(transfer.path), session.downloads);
    assert.ok(!existsSync(path.join(session.home, ".bashrc")));
  });

  test("link that works once stays with the browser", async () => {
    await session.click("once");
    await session.expectKept("once.bin");
  });

  test("result of a POST stays with the browser", async () => {
    await session.click("post");
    await session.expectKept("posted.bin");
    assert.equal(session.site.requests.filter((one) => one === "POST /app/post").length, 1);
  });

  test("link without ranges stays with the browser", async () => {
    await session.click("no-ranges");
    await session.expectKept("no-ranges.bin");
  });

  test("blob: and data: stay with the browser", async () => {
    const before = (await session.longhaul.transfers()).length;
    await session.click("blob");
    await eventually("the blob is saved", () => existsSync(path.join(session.downloads, "blob.bin")));
    await session.click("data");
    await eventually("the data is saved", () => existsSync(path.join(session.downloads, "data.bin")));
    assert.equal((await session.longhaul.transfers()).length, before);
  });

  test("password of the page is forwarded where the browser gives it, and the file arrives in any case", async () => {
    const { host } = new URL(session.site.url);
    await session.browser.open(`http://anna:secret@${host}/index.html`);
    await session.browser.evaluate(`document.getElementById("basic").href = "http://anna:secret@${host}/basic.bin"`);
    await session.browser.click("#basic");
    await eventually("the file is there", async () => {
      const transfers = await session.longhaul.transfers();
      const saved = path.join(session.downloads, "basic.bin");
      return transfers.some((one) => one.name === "basic.bin" && one.state === "done") ||
        (existsSync(saved) && (await stat(saved)).size === SIZE);
    });
  });

  test("expired link is refreshed by one click, and the partial continues", async () => {
    session.site.expired = false;
    await session.browser.open(`${session.site.url}/app/signed-page`);
    await session.browser.click("#signed");
    await session.longhaul.until("signed.bin", (one) => one.state === "running" && one.bytes > 4 * 1024 * 1024, "it runs");
    session.site.expired = true;
    const waiting = await session.longhaul.until("signed.bin", (one) => one.state === "waiting-link", "it asks for a link");
    await session.openPopup();
    await session.browser.click(`${row(waiting.id)} [data-action="open-dead-link"]`);
    await eventually("the page is open", async () => {
      const tabs = await session.browser.tabs();
      await session.browser.switchTo(tabs.at(-1));
      return (await session.browser.url())?.endsWith("/app/signed-page");
    });
    await session.browser.click("#signed");
    const done = await session.expectTaken("signed.bin");
    assert.equal(done.id, waiting.id, "the same transfer");
  });

  test("failed transfer of unknown size has a bar that stands still", async () => {
    await session.longhaul.run("queue", "add", `${session.site.url}/app/no-such-file`);
    await session.openPopup();
    await eventually("it has failed", () => session.browser.evaluate(`
      const row = document.querySelector("[data-state=failed]");
      return row !== null && row.querySelector("progress").hasAttribute("value");`));
    await session.screenshot("failed");
  });

  test("agent killed in mid-transfer comes back and completes", async () => {
    await session.click("slow");
    await eventually("a second one runs", async () => (await session.longhaul.transfers()).some((one) => one.name.startsWith("slow") && one.state === "running" && one.bytes > 0));
    const agent = Number((await session.longhaul.run("agent", "status", "--json").then(JSON.parse)).pid);
    process.kill(agent, "SIGKILL");
    await eventually("it is complete", async () => {
      const transfers = await session.longhaul.transfers().catch(() => []);
      const last = transfers.findLast((one) => one.name.startsWith("slow"));
      return last?.state === "done" && (await sha256(last.path)) === session.site.digest;
    });
  });

  test("browser killed in mid-transfer: the transfer completes", async () => {
    const before = (await session.longhaul.transfers()).at(-1).id;
    await session.click("slow");
    const running = () => session.longhaul.transfers().then((all) => all.find((one) => one.id > before && one.bytes > 0));
    await eventually("it runs", async () => Boolean(await running()));
    session.browser.kill();
    await eventually("it is complete", async () => (await running())?.state === "done");
    assert.equal(await sha256((await running()).path), session.site.digest);
    // What is left of the profile is of no use to a fresh session.
    for (const profile of ["firefox-profile", "chromium-profile"]) await rm(path.join(session.home, profile), { recursive: true, force: true });
    await mkdir(session.userDataDir);
    await session.longhaul.run("browser", "install", "--user-data-dir", session.userDataDir);
  });

  test("without the program the browser downloads by itself, and the popup says what to do", async () => {
    await session.longhaul.run("browser", "uninstall");
    await session.launch();
    await session.click("private-link");
    await eventually("the browser saves it", () => existsSync(path.join(session.downloads, "private-link.bin")));
    await session.openPopup();
    await eventually("the popup has the command", () => session.browser.evaluate(`return document.body.textContent.includes("longhaul browser install")`));
    await session.screenshot("not-installed");
  });
});
