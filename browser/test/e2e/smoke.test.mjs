// What a user does each day, in one start of each browser: what `make test` runs. The other files hold the rest (`npm run e2e:all`).
//
//   LONGHAUL=$PWD/target/release/longhaul BROWSERS=firefox,chromium npm run --prefix browser e2e
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { eventually, inEachBrowser } from "./session.mjs";

inEachBrowser((session) => {
  const inPopup = (id, action) => session.browser.click(`[data-transfer="${id}"] [data-action="${action}"]`);

  test("check finds the browsers connected", async () => {
    assert.match(await session.longhaul.run("browser", "check", "--user-data-dir", session.userDataDir), /connected/);
  });

  test("large link arrives through the agent, verified", async () => {
    await session.click("plain");
    await session.expectTaken("plain.bin");
  });

  test("pause and resume in the popup", async () => {
    await session.click("held");
    const { id } = await session.longhaul.until("held.bin", (one) => one.state === "running" && one.bytes > 0, "it runs");
    await session.openPopup();
    await inPopup(id, "pause");
    const paused = await session.longhaul.until("held.bin", (one) => one.state === "paused", "it pauses");
    await session.screenshot("paused");
    await inPopup(id, "resume");
    await session.longhaul.until("held.bin", (one) => one.state === "running" && one.bytes > paused.bytes, "it goes on");
    await session.screenshot("running");
  });

  test("killed agent is lost in the popup, and comes back without a click", async () => {
    const { id } = await session.longhaul.until("held.bin", (one) => one.state === "running", "it runs");
    await session.browser.evaluate(`
      const [problem, kept] = [document.getElementById("problem"), document.documentElement.dataset];
      new MutationObserver(() => { if (!problem.hidden) kept.lost = document.querySelector("[data-transfer='${id}']").dataset.state; })
        .observe(problem, { attributes: true });`);
    process.kill(Number(JSON.parse(await session.longhaul.run("agent", "status", "--json")).pid), "SIGKILL");
    await eventually("it is lost, and runs again", () => session.browser.evaluate(`
      return document.documentElement.dataset.lost === "lost" && document.getElementById("problem").hidden &&
        document.querySelector("[data-transfer='${id}']").dataset.state === "running";`));
    session.site.release();
    assert.equal((await session.expectTaken("held.bin")).id, id);
  });

  test("rules for hosts change what is taken", async () => {
    await session.setOptions((page) => page.fill("#hosts", "127.0.0.1 never"));
    await session.click("named");
    await eventually("the browser saves it", () => existsSync(path.join(session.downloads, "given name.bin")));
    await session.setOptions((page) => page.fill("#hosts", "127.0.0.1 always"));
    await session.click("small");
    await session.longhaul.until("small.bin", (one) => one.state === "done", "a small one is taken");
  });
});
