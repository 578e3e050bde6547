// A headless Chromium with the extension, driven by real clicks.
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import puppeteer from "puppeteer-core";

const EXTENSION_ID = "ogkijnhkdbnpemdfgbbbkmpdmajjjgmh";

export class Chromium {
  name = "chromium";
  #browser;
  #page;
  #dark;

  /** Not Chromium's own directory, in which extensions loaded by remote control do not run. */
  static userDataDir(home) {
    return path.join(home, "chromium-profile");
  }

  /** Starts Chromium with the profile below `home`, which must be fresh; `extension` null starts it without. `dark`: the desktop's theme. */
  static async launch({ home, downloads, extension, dark = false }) {
    const userDataDir = Chromium.userDataDir(home);
    await mkdir(path.join(userDataDir, "Default"), { recursive: true });
    const preferences = {
      download: { default_directory: downloads, prompt_for_download: false },
      // As where the user has allowed a page several downloads at once, and downloads over HTTP from other hosts than this one,
      // which wait for a click in a warning otherwise.
      profile: { default_content_setting_values: { automatic_downloads: 1, mixed_script: 1 } },
    };
    await writeFile(path.join(userDataDir, "Default", "Preferences"), JSON.stringify(preferences));
    const folders = extension ? [path.resolve(extension, "chromium")] : false;
    const chromium = new Chromium();
    chromium.#dark = dark;
    chromium.#browser = await puppeteer.launch({
      executablePath: "/usr/bin/chromium",
      headless: true,
      pipe: true,
      userDataDir,
      enableExtensions: folders,
      extensionsEnabledInIncognito: folders || [],
      env: { ...process.env, HOME: home, XDG_CONFIG_HOME: path.join(home, ".config"), XDG_RUNTIME_DIR: path.join(home, "run") },
      args: ["--no-sandbox", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"],
    });
    chromium.#page = await chromium.#browser.newPage();
    if (extension) await chromium.#browser.waitForTarget((target) => target.type() === "service_worker", { timeout: 60_000 });
    return chromium;
  }

  async open(url, timeout = 60_000) {
    await this.#page.goto(url, { waitUntil: "load", timeout });
  }

  reload() {
    return this.#page.reload();
  }

  /** Clicks an element as a user does. */
  async click(selector) {
    await this.#page.waitForSelector(selector, { visible: true, timeout: 60_000 });
    await this.#page.click(selector);
  }

  /** Replaces the text of a field, by the keyboard. */
  async fill(selector, text) {
    await this.#page.click(selector);
    await this.#page.keyboard.down("Control");
    await this.#page.keyboard.press("a");
    await this.#page.keyboard.up("Control");
    await this.#page.keyboard.type(text);
  }

  press(key) {
    return this.#page.keyboard.press(key);
  }

  /** Runs the body of a function in the page. */
  evaluate(script) {
    return this.#page.evaluate(new Function(script));
  }

  extensionPage(page) {
    return `chrome-extension://${EXTENSION_ID}/${page}`;
  }

  /** Opens `url` in a tab of its own, and goes on there. */
  async openTab(url, timeout) {
    this.#page = await this.#browser.newPage();
    if (this.#dark) await this.#page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    await this.open(url, timeout);
  }

  /** Opens `url` in a private window, and goes on there. */
  async openPrivate(url) {
    const extension = await this.#browser.waitForTarget((target) => target.type() === "service_worker");
    const known = new Set(this.#browser.targets());
    const opened = this.#browser.waitForTarget((target) => target.type() === "page" && !known.has(target));
    await (await extension.worker()).evaluate((url) => chrome.windows.create({ url, incognito: true }), url);
    this.#page = await (await opened).page();
  }

  /** Waits until Chromium itself has begun a download of this name in a private window, and cancels it. */
  async privateDownload(name) {
    const extension = await this.#browser.waitForTarget((target) => target.type() === "service_worker");
    const seen = async (name) => {
      const end = Date.now() + 10_000;
      let all = [];
      while (Date.now() < end) {
        all = await chrome.downloads.search({});
        const item = all.find((one) => one.incognito && one.url.endsWith(name) && !one.paused);
        if (item) return chrome.downloads.cancel(item.id).then(() => "seen");
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      return JSON.stringify(all.map((one) => [one.url, one.incognito, one.state, one.paused]));
    };
    const found = await (await extension.worker()).evaluate(seen, name);
    if (found !== "seen") throw new Error(`Chromium has begun no private download of ${name}: ${found}`);
  }

  tabs() {
    return this.#browser.pages();
  }

  async switchTo(tab) {
    this.#page = tab;
    await tab.bringToFront();
  }

  async url() {
    return this.#page.url();
  }

  async screenshot(file) {
    await this.#page.screenshot({ path: file });
  }

  kill() {
    this.#browser.process().kill("SIGKILL");
  }

  async close() {
    await this.#browser.close().catch(() => undefined);
  }
}
