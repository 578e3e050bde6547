// What the extension leaves alone, and what it asks about: other windows, other stores, other answers, too many downloads.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";

import { eventually, inEachBrowser } from "./session.mjs";

/** Downloads of the page that starts many; the rule for 10,000 has a unit test. */
const BURST = Number(process.env.BURST ?? 60);
/** How many of them are taken over without a question (burst_guard.ts). */
const FREE = 30;

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

  test("container: its own cookie is sent", { skip: session.name !== "firefox" && "Chromium has no containers" }, async () => {
    await session.browser.openTab(`${session.site.url}/app/store?name=usual`);
    await session.browser.openContainer(`${session.site.url}/app/store?name=work`);
    await session.browser.click("#of-store");
    await session.expectTaken("of-work.bin");
  });

  test("rules for hosts change what is taken", async () => {
    await session.setOptions((page) => page.fill("#hosts", "127.0.0.1 never"));
    await session.click("named");
    await eventually("the browser saves it", () => existsSync(path.join(session.downloads, "given name.bin")));
    await session.setOptions((page) => page.fill("#hosts", "127.0.0.1 always"));
    await session.click("small");
    await session.longhaul.until("small.bin", (one) => one.state === "done", "a small one is taken");
  });

  test("line that is no rule is refused, and named", async () => {
    await session.browser.openTab(session.browser.extensionPage("options/options.html"));
    await session.browser.fill("#hosts", "127.0.0.1 perhaps");
    await session.browser.click("button[type=submit]");
    await eventually("the line is named", () => session.browser.evaluate(`return document.getElementById("status").textContent.includes("127.0.0.1 perhaps")`));
  });

  test("page that starts many downloads hands over some, and the browser keeps the others", async () => {
    const before = (await session.longhaul.transfers()).length;
    await session.browser.openTab(`${session.site.url}/app/burst?count=${BURST}`);
    const missing = async () => {
      const saved = new Set(await readdir(session.downloads));
      return [...Array(BURST).keys()].filter((number) => !saved.has(`${number}.bin`));
    };
    await eventually("all have arrived", async () => (await missing()).length === 0, 30_000 + BURST * 100).catch(async (error) => {
      throw new Error(`${error.message}: missing are ${await missing()}`);
    });
    // Those of the tests before count as well: they were of the same page.
    const taken = (await session.longhaul.transfers()).length - before;
    assert.ok(taken > 0 && taken <= FREE, `${taken} were taken`);
  });
});
