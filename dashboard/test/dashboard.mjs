// The dashboard as a user sees it: what stands in it, and what can be pressed. Nothing refers to elements across a redraw.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Generous: two browsers and an unoptimised agent may share two cores with others.
const PATIENCE_MS = 40_000;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export class Dashboard {
  #browser;
  page;
  /** What the page's console and its scripts complained of. */
  complaints = [];

  constructor(browser) {
    this.#browser = browser;
    this.page = browser.page;
    this.page.setDefaultTimeout(PATIENCE_MS);
    this.page.on("pageerror", (error) => this.complaints.push(String(error.message ?? error)));
    this.page.on("console", (message) => {
      // A refused connection is what the test of a killed agent makes.
      if (message.type() === "error" && !/Failed to load|ERR_|NetworkError|can’t establish|can't establish/.test(message.text())) this.complaints.push(message.text());
    });
  }

  async open(login, width = 1280, height = 900) {
    await this.page.setViewport({ width, height });
    await this.page.goto(login, { waitUntil: "domcontentloaded" });
    await this.until(() => document.getElementById("totals").textContent !== "", "the totals");
  }

  /** Waits until a function, run in the page, returns a true value. */
  async until(test, what, ...values) {
    const found = await this.page.waitForFunction(test, { timeout: PATIENCE_MS, polling: 100 }, ...values).catch(async (error) => {
      const text = await this.page.evaluate(() => document.body.innerText).catch(() => "");
      throw new Error(`waited for ${what}: ${error.message}\n${text}`);
    });
    return found.jsonValue();
  }

  async press(selector) {
    await this.page.locator(selector).click();
  }

  async write(selector, text) {
    await this.page.waitForSelector(selector);
    await this.page.focus(selector);
    await this.page.$eval(selector, (field) => {
      field.value = "";
    });
    await this.page.type(selector, text);
  }

  /** Adds by the field; returns the number of the transfer that is then shown. */
  async add(text, options = {}) {
    const before = await this.shownId();
    await this.write("#urls", text);
    for (const [name, value] of Object.entries(options)) {
      await this.page.$eval("details.options", (details) => {
        details.open = true;
      });
      await this.write(`#add-${name}`, value);
    }
    await this.press("#add button[type=submit]");
    return this.until((old) => {
      const id = Number(location.hash.slice(2));
      return id > 0 && id !== old && document.querySelector("#transfer-name") ? id : 0;
    }, "the added transfer", before);
  }

  shownId() {
    return this.page.evaluate(() => Number(location.hash.slice(2)));
  }

  /** Waits for a state of the transfer that is shown. */
  state(...names) {
    return this.until((wanted) => wanted.includes(document.querySelector(".transfer-head .chip")?.dataset.state), names.join(" or "), names);
  }

  text(selector) {
    return this.page.$eval(selector, (element) => element.textContent);
  }

  /** Returns what axe-core finds wrong, a line each. */
  async accessibility() {
    await this.page.evaluate(`${AXE}; undefined`);
    const found = await this.page.evaluate(async () => {
      const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
      return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`));
    });
    return found;
  }

  /** Returns how far the page is wider than the window. */
  overflow() {
    return this.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  }

  async picture(directory, name) {
    await this.page.screenshot({ path: `${directory}/${this.#browser.name}-${name}.png` });
  }
}
