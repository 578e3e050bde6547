// What the extension leaves alone, and what it asks about: other windows, other stores, other answers, too many downloads.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";

import { Ftp } from "./ftp.mjs";
import { eventually, inEachBrowser } from "./session.mjs";
import { SMALL, TINY } from "./site.mjs";

/** Downloads of the page that starts many; the rule for 10,000 has a unit test. */
const BURST = 60;
/** How many of them are taken over without a question (burst_guard.ts). */
const FREE = 30;
/** Chromium has no containers, and its context menu is a window of the desktop, which no remote control reaches. */
const ONLY_FIREFOX = (session) => session.name !== "firefox" && "only Firefox";
/** Firefox hands a download over before its first byte, whatever its size. */
const ONLY_CHROMIUM = (session) => session.name !== "chromium" && "only Chromium";

inEachBrowser((session) => {
  test("page is reloaded while its download runs: the transfer goes on, and none is added", async () => {
    await session.click("slow");
    const { id } = await session.longhaul.until("slow.bin", (one) => one.state === "running" && one.bytes > 0, "it runs");
    await session.browser.reload();
    await session.browser.reload();
    assert.equal((await session.expectTaken("slow.bin")).id, id);
    assert.equal((await session.longhaul.transfers()).length, 1);
  });

  test("server that answers the agent with another size: the browser goes on", async () => {
    await session.click("other-size");
    await session.expectKept("other-size.bin");
  });

  test("server that answers the agent with a page: the browser goes on", async () => {
    await session.click("login-page");
    await session.expectKept("login-page.bin");
  });

  test("server that does not answer the agent in time: the browser goes on", async () => {
    await session.setOptions((page) => page.fill("#answer", "1"));
    await session.click("one-connection");
    await session.expectKept("one-connection.bin");
    await session.setOptions((page) => page.fill("#answer", "60"));
  });

  test("private window is left alone until the options allow it", async () => {
    const before = (await session.longhaul.transfers()).length;
    await session.browser.openPrivate(`${session.site.url}/index.html`);
    await session.browser.click("#private-link");
    if (session.name === "firefox") await session.expectKept("private-link.bin");
    else await session.browser.privateDownload("private-link.bin");
    assert.equal((await session.longhaul.transfers()).length, before);
    // A headless Chromium often interrupts downloads of private windows by itself.
    if (session.name === "chromium") return;
    await session.setOptions((page) => page.click("#private"));
    await session.browser.openPrivate(`${session.site.url}/index.html`);
    await session.browser.click("#guarded");
    await session.expectTaken("guarded.bin");
  });

  test("container: its own cookie is sent", { skip: ONLY_FIREFOX(session) }, async () => {
    await session.browser.openTab(`${session.site.url}/app/store?name=usual`);
    await session.browser.openContainer(`${session.site.url}/app/store?name=work`);
    await session.browser.click("#of-store");
    await session.expectTaken("of-work.bin");
  });

  test("container: a link added by the context menu is fetched with its own cookie", { skip: ONLY_FIREFOX(session) }, async () => {
    await session.browser.openTab(`${session.site.url}/app/store?name=usual`);
    await session.browser.openContainer(`${session.site.url}/app/store?name=hobby`);
    await session.browser.chooseInContextMenu("#of-store");
    await session.expectTaken("of-hobby.bin");
  });

  test("container: the page of a dead link opens there, and only a download from there continues it", { skip: ONLY_FIREFOX(session) }, async () => {
    session.site.expired = false;
    await session.browser.openContainer(`${session.site.url}/app/store?name=work`);
    await session.browser.click("#to-signed");
    await session.browser.click("#signed");
    await session.longhaul.until("store-signed.bin", (one) => one.state === "running" && one.bytes > 4 * 1024 * 1024, "it runs");
    session.site.expired = true;
    const waiting = await session.longhaul.until("store-signed.bin", (one) => one.state === "waiting-link", "it asks for a link");
    await session.openPopup();
    const before = await session.browser.tabs();
    await session.browser.click(`[data-transfer="${waiting.id}"] [data-action="open-dead-link"]`);
    let page;
    await eventually("the page is open, with the container's cookie", async () => {
      page = (await session.browser.tabs()).find((tab) => !before.includes(tab));
      if (!page) return false;
      await session.browser.switchTo(page);
      return session.browser.evaluate(`return location.pathname === "/app/store-signed-page" && document.title === "work"`);
    });
    // Of the same size, from the same site, in another store.
    await session.browser.openTab(`${session.site.url}/index.html`);
    await session.browser.click("#guarded");
    await session.expectTaken("guarded.bin");
    assert.equal((await session.longhaul.until("store-signed.bin", () => true)).state, "waiting-link");
    await session.browser.switchTo(page);
    await session.browser.click("#signed");
    assert.equal((await session.expectTaken("store-signed.bin")).id, waiting.id, "the same transfer");
  });

  test("FTP link is handed over by the context menu", { skip: ONLY_FIREFOX(session) }, async (test) => {
    const server = await Ftp.start(session.folder);
    if (!server) return test.skip("vsftpd or root is missing");
    try {
      await session.browser.openTab(`${session.site.url}/app/link?to=${encodeURIComponent(`${server.url}/files/of-ftp.bin`)}`);
      await session.browser.chooseInContextMenu("#link");
      await session.expectTaken("of-ftp.bin");
    } finally {
      await server.stop();
    }
  });

  test("line that is no rule is refused, and named", async () => {
    await session.browser.openTab(session.browser.extensionPage("options/options.html"));
    await session.browser.fill("#hosts", "127.0.0.1 perhaps");
    await session.browser.click("button[type=submit]");
    await eventually("the line is named", () => session.browser.evaluate(`return document.getElementById("status").textContent.includes("127.0.0.1 perhaps")`));
  });

  /** Opens a page that starts many downloads, all to be taken by the rules; returns how many the agent has taken once all files are whole. */
  async function burst(of, size) {
    await session.setOptions((page) => page.fill("#hosts", "127.0.0.1 always"));
    const before = (await session.longhaul.transfers()).length;
    await session.browser.openTab(`${session.site.url}/app/burst?count=${BURST}&of=${of}`, 120_000);
    const names = [...Array(BURST).keys()].map((number) => `${of}-${number}.bin`);
    const missing = async () => {
      const sizes = await Promise.all(names.map((name) => stat(path.join(session.downloads, name)).then((file) => file.size, () => null)));
      return names.filter((_, number) => sizes[number] !== size);
    };
    await eventually("all have arrived", async () => (await missing()).length === 0, 120_000).catch(async (error) => {
      throw new Error(`${error.message}: missing are ${await missing()}`);
    });
    return (await session.longhaul.transfers()).length - before;
  }

  test("Chromium keeps downloads that it may have whole, and loses none", { skip: ONLY_CHROMIUM(session) }, async () => {
    assert.equal(await burst("tiny", TINY), 0);
  });

  test("page that starts many downloads hands over some, and the browser keeps the others", async () => {
    // Those of the tests before count as well: they were of the same page.
    const taken = await burst("small", SMALL);
    assert.ok(taken > 0 && taken <= FREE, `${taken} were taken`);
  });
});
