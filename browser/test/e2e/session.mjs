// A browser with the extension, the site that it visits, and the agent behind it; each with a home of its own.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
import { copyFile, cp, mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { after, before, describe } from "node:test";

import { Chromium } from "../browsers/chromium.mjs";
import { Firefox } from "../browsers/firefox.mjs";
import { Longhaul } from "./longhaul.mjs";
import { SIZE, Site } from "./site.mjs";

const PROGRAM = path.resolve(process.env.LONGHAUL ?? "../target/release/longhaul");
export const SCREENSHOTS = path.resolve(process.env.SCREENSHOTS ?? "dist/screenshots");
const BROWSERS = { firefox: Firefox, chromium: Chromium };

/**
 * Runs `tests(session)` in the browsers that the variable BROWSERS names, on a desktop of that language and theme: the browsers at the same
 * time, the tests of each one after the other.
 */
export function inEachBrowser(tests, desktop = {}) {
  describe("browsers", { concurrency: true }, () => {
    for (const name of (process.env.BROWSERS ?? "firefox,chromium").split(",")) {
      describe(name, { concurrency: false, timeout: 600_000 }, () => {
        const session = new Session(BROWSERS[name], desktop);
        before(() => session.start());
        after(() => session.stop());
        tests(session);
      });
    }
  });
}

class Session {
  constructor(Browser, desktop) {
    this.desktop = desktop;
    this.Browser = Browser;
    this.name = Browser.name.toLowerCase();
  }

  async start() {
    this.folder = await mkdtemp(path.join(os.tmpdir(), "longhaul-click-"));
    this.home = path.join(this.folder, "home");
    // What browsers and the agent both save to.
    this.downloads = path.join(this.home, "Downloads");
    for (const dir of [this.downloads, `${this.home}/run`, `${this.home}/.mozilla`, this.userDataDir, SCREENSHOTS]) {
      await mkdir(dir, { recursive: true, mode: 0o700 });
    }
    this.site = await Site.start(this.folder);
    this.longhaul = new Longhaul(PROGRAM, this.home);
    await this.longhaul.run("browser", "install", "--user-data-dir", this.userDataDir);
    await this.launch();
    await this.browser.open(`${this.site.url}/index.html`);
  }

  async stop() {
    await this.browser?.close();
    await this.longhaul?.run("agent", "stop").catch(() => undefined);
    await this.site?.stop();
    // The processes of the browser may write into its profile for some seconds yet.
    await rm(this.folder, { recursive: true, force: true, maxRetries: 20 });
  }

  get userDataDir() {
    return Chromium.userDataDir(this.home);
  }

  /** Starts the browser; a slow machine must not have it keep downloads. */
  async launch() {
    const { language, dark } = this.desktop;
    const extension = language ? await this.inLanguage(language) : "dist";
    this.browser = await this.Browser.launch({ home: this.home, downloads: this.downloads, extension, dark });
    await this.setOptions((page) => page.fill("#answer", "60"));
  }

  /** Makes a copy of the extension whose English is another language: Debian's browsers have languages as packages of their own. */
  async inLanguage(language) {
    const copy = path.join(this.folder, "dist");
    for (const browser of Object.keys(BROWSERS)) {
      await cp(`dist/${browser}`, path.join(copy, browser), { recursive: true });
      const locales = path.join(copy, browser, "_locales");
      await copyFile(path.join(locales, language, "messages.json"), path.join(locales, "en", "messages.json"));
    }
    return copy;
  }

  /** Clicks a link of the site's page. */
  async click(id) {
    await this.browser.open(`${this.site.url}/index.html`);
    await this.browser.click(`#${id}`);
  }

  async openPopup() {
    await this.browser.openTab(this.browser.extensionPage("popup/popup.html"));
  }

  /** Opens the options page in a tab, has `change` make its changes there, and saves. */
  async setOptions(change) {
    await this.browser.openTab(this.browser.extensionPage("options/options.html"));
    await change(this.browser);
    await this.browser.click("button[type=submit]");
    await eventually("the options are saved", () => this.browser.evaluate(`return document.getElementById("status").textContent !== ""`));
    assert.equal(await this.browser.evaluate(`return document.getElementById("status").className`), "");
  }

  async screenshot(what) {
    await this.browser.screenshot(path.join(SCREENSHOTS, `${this.name}-${what}.png`));
  }

  /** Expects that the agent has fetched the file, whole and right. */
  async expectTaken(file) {
    const transfer = await this.longhaul.until(file, (one) => one.state === "done", "it is complete");
    assert.equal(transfer.bytes, SIZE);
    assert.equal(await sha256(transfer.path), this.site.digest);
    return transfer;
  }

  /** Expects that the browser itself has saved the file, and that the agent has none of it. */
  async expectKept(file) {
    const saved = path.join(this.downloads, file);
    await eventually(`the browser saves ${file}`, async () => existsSync(saved) && (await stat(saved)).size === SIZE);
    assert.equal(await sha256(saved), this.site.digest);
    const taken = (await this.longhaul.transfers()).filter((one) => one.name === file);
    assert.deepEqual(taken, [], "the agent keeps nothing of it");
  }
}

export async function sha256(file) {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest("hex");
}

export async function eventually(what, holds, timeout = 60_000) {
  const end = Date.now() + timeout;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
