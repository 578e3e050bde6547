// A headless Firefox with the extension, driven by real clicks.
import { spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";

import { freePort } from "./free_port.mjs";
import { Marionette } from "./marionette.mjs";

const EXTENSION_ID = "browser@longhaul.invalid";
/** Fixed, so that the extension's pages have a known address. */
const EXTENSION_UUID = "6c1d4a5e-0f0b-4a43-9f4e-3f2f7a2b9c11";
const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";

export class Firefox {
  name = "firefox";
  #process;
  #marionette;

  /** Starts Firefox with a fresh profile below `home`; `extension` null starts it without. `dark`: the desktop's theme. */
  static async launch({ home, downloads, extension, dark = false }) {
    const profile = path.join(home, "firefox-profile");
    await mkdir(profile, { recursive: true });
    const port = await freePort();
    await writeFile(path.join(profile, "user.js"), preferences({
      "marionette.port": port,
      "extensions.webextensions.uuids": JSON.stringify({ [EXTENSION_ID]: EXTENSION_UUID }),
      "browser.download.folderList": 2,
      "browser.download.dir": downloads,
      "browser.download.useDownloadDir": true,
      "browser.download.always_ask_before_handling_new_types": false,
      "browser.download.alwaysOpenPanel": false,
      "ui.systemUsesDarkTheme": dark ? 1 : 0,
      "browser.shell.checkDefaultBrowser": false,
      "browser.startup.page": 0,
      "datareporting.policy.dataSubmissionEnabled": false,
      "dom.disable_open_during_load": false,
      "network.captive-portal-service.enabled": false,
      "network.connectivity-service.enabled": false,
      "network.auth.non-web-content-triggered-resources-http-auth-allow": true,
    }));
    const firefox = new Firefox();
    firefox.#process = spawn(
      "firefox-esr",
      ["-headless", "-marionette", "-remote-allow-system-access", "-no-remote", "-profile", profile],
      { env: { ...process.env, HOME: home, XDG_RUNTIME_DIR: path.join(home, "run") }, stdio: "ignore" },
    );
    firefox.#marionette = await Marionette.connect(port);
    await firefox.#send("WebDriver:NewSession", { pageLoadStrategy: "none" });
    await firefox.#send("WebDriver:SetTimeouts", { implicit: 60_000, script: 60_000, pageLoad: 60_000 });
    if (extension) {
      await firefox.#send("Addon:Install", {
        path: path.resolve(extension, "firefox"), temporary: true, allowPrivateBrowsing: true,
      });
    }
    return firefox;
  }

  async open(url, timeout = 60_000) {
    // No page-load strategy waits here: the page of before is marked, so that it is not taken for the new one.
    await this.evaluate("window.leaving = true").catch(() => undefined);
    await this.#send("WebDriver:Navigate", { url });
    await this.#until(`return !window.leaving && document.readyState === "complete" && location.href !== "about:blank"`, timeout);
  }

  async reload() {
    await this.open(await this.url());
  }

  /** Clicks an element as a user does. */
  async click(selector) {
    const { value } = await this.#send("WebDriver:FindElement", { using: "css selector", value: selector });
    await this.#send("WebDriver:ElementClick", { id: value[ELEMENT] });
  }

  /** Replaces the text of a field, by the keyboard. */
  async fill(selector, text) {
    const { value } = await this.#send("WebDriver:FindElement", { using: "css selector", value: selector });
    await this.#send("WebDriver:ElementClear", { id: value[ELEMENT] });
    await this.#send("WebDriver:ElementSendKeys", { id: value[ELEMENT], text });
  }

  async press(key) {
    const value = { Tab: "\uE004", Enter: "\uE007" }[key];
    const actions = [{ type: "keyDown", value }, { type: "keyUp", value }];
    await this.#send("WebDriver:PerformActions", { actions: [{ type: "key", id: "keyboard", actions }] });
  }

  /** Runs the body of a function in the page. */
  async evaluate(script) {
    return (await this.#send("WebDriver:ExecuteScript", { script, args: [], sandbox: null })).value;
  }

  extensionPage(page) {
    return `moz-extension://${EXTENSION_UUID}/${page}`;
  }

  /** Opens `url` in a tab of its own, and goes on there. */
  async openTab(url, timeout) {
    const { handle } = await this.#send("WebDriver:NewWindow", { type: "tab" });
    await this.#send("WebDriver:SwitchToWindow", { handle });
    await this.open(url, timeout);
  }

  /** Opens `url` in a private window, and goes on there. */
  async openPrivate(url) {
    const { handle } = await this.#send("WebDriver:NewWindow", { type: "window", private: true });
    await this.switchTo(handle);
    await this.open(url);
  }

  /** Opens `url` in a tab of a fresh container, and goes on there. */
  async openContainer(url) {
    const before = await this.tabs();
    await this.#inChrome(`
      const { ContextualIdentityService } = ChromeUtils.importESModule("resource://gre/modules/ContextualIdentityService.sys.mjs");
      const { userContextId } = ContextualIdentityService.create("work", "briefcase", "orange");
      const { PrivateBrowsingUtils } = ChromeUtils.importESModule("resource://gre/modules/PrivateBrowsingUtils.sys.mjs");
      const windows = [...Services.wm.getEnumerator("navigator:browser")];
      // A private window has no containers.
      const { gBrowser } = windows.find((window) => !PrivateBrowsingUtils.isWindowPrivate(window));
      const triggeringPrincipal = Services.scriptSecurityManager.createContentPrincipal(Services.io.newURI(${JSON.stringify(url)}), { userContextId });
      gBrowser.selectedTab = gBrowser.addTab(${JSON.stringify(url)}, { userContextId, triggeringPrincipal });`);
    let fresh;
    while (!(fresh = (await this.tabs()).find((tab) => !before.includes(tab)))) await new Promise((resolve) => setTimeout(resolve, 50));
    await this.switchTo(fresh);
    await this.#until(`return document.readyState === "complete" && location.href !== "about:blank"`);
  }

  /** Chooses the extension's entry in the context menu of a link. */
  async chooseInContextMenu(selector) {
    const { value } = await this.#send("WebDriver:FindElement", { using: "css selector", value: selector });
    const actions = [
      { type: "pointerMove", origin: value, x: 0, y: 0 }, { type: "pointerDown", button: 2 }, { type: "pointerUp", button: 2 },
    ];
    await this.#send("WebDriver:PerformActions", { actions: [{ type: "pointer", id: "mouse", actions }] });
    await this.#inChrome(`
      const { setTimeout } = ChromeUtils.importESModule("resource://gre/modules/Timer.sys.mjs");
      const menus = [...Services.wm.getEnumerator("navigator:browser")].map((window) => window.document.getElementById("contentAreaContextMenu"));
      for (let tries = 0; tries < 100; tries += 1) {
        const menu = menus.find((menu) => menu.state === "open");
        const entry = menu?.querySelector("menuitem[id*='menuitem-_add']");
        if (entry) return menu.activateItem(entry);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      throw new Error("no context menu with the extension's entry");`);
  }

  async tabs() {
    return this.#send("WebDriver:GetWindowHandles");
  }

  async switchTo(tab) {
    await this.#send("WebDriver:SwitchToWindow", { handle: tab });
  }

  url() {
    return this.evaluate("return location.href");
  }

  async screenshot(file) {
    const { value } = await this.#send("WebDriver:TakeScreenshot", { full: false, hash: false });
    await writeFile(file, Buffer.from(value, "base64"));
  }

  async resize(width, height) {
    await this.#send("WebDriver:SetWindowRect", { width, height });
  }

  /** Takes a picture of the whole window: page, tabs and toolbar. */
  async windowScreenshot(file) {
    await this.#send("Marionette:SetContext", { value: "chrome" });
    await this.screenshot(file).finally(() => this.#send("Marionette:SetContext", { value: "content" }));
  }

  kill() {
    this.#marionette.close();
    this.#process.kill("SIGKILL");
  }

  async close() {
    if (this.#process.exitCode !== null) return;
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    await Promise.race([
      this.#send("Marionette:Quit", { flags: ["eForceQuit"] }).catch(() => undefined),
      new Promise((resolve) => setTimeout(resolve, 5_000)),
    ]);
    setTimeout(() => this.#process.kill("SIGKILL"), 5_000).unref();
    await ended;
  }

  async #until(script, timeout = 60_000) {
    const end = Date.now() + timeout;
    while (!(await this.evaluate(script).catch(() => false))) {
      if (Date.now() > end) throw new Error(`Firefox: in vain: ${script}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  /** Runs the body of an async function with the browser's own privileges. */
  async #inChrome(script) {
    await this.#send("Marionette:SetContext", { value: "chrome" });
    try {
      return (await this.#send("WebDriver:ExecuteScript", { script: `return (async () => { ${script} })();`, args: [], sandbox: null })).value;
    } finally {
      await this.#send("Marionette:SetContext", { value: "content" });
    }
  }

  #send(name, parameters) {
    return this.#marionette.send(name, parameters);
  }
}

function preferences(values) {
  return Object.entries(values)
    .map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`)
    .join("");
}
