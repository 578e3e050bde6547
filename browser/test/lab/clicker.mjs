// A browser on the client of a lab that downloads one file by a real click: by itself, or through Longhaul.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

import { Chromium } from "../browsers/chromium.mjs";
import { Firefox } from "../browsers/firefox.mjs";
import { Longhaul } from "../e2e/longhaul.mjs";

const run = promisify(execFile);
const BROWSERS = { firefox: Firefox, chromium: Chromium };
/** The built extension. */
const EXTENSION = path.resolve(import.meta.dirname, "../../dist");
/** How often the file and the connections are looked at, milliseconds. */
const CHECK_INTERVAL = 10;
/** A connection that has received more has more than the head of an answer. */
const HEAD_BYTES = 2_048;

export class Clicker {
  /** `program` null: the browser without the extension. Files go below `parent`. */
  static async start({ browser, program, parent = os.tmpdir() }) {
    const clicker = new Clicker();
    clicker.folder = await mkdtemp(path.join(parent, "longhaul-click-"));
    const home = path.join(clicker.folder, "home");
    clicker.downloads = path.join(home, "Downloads");
    const userDataDir = Chromium.userDataDir(home);
    for (const dir of [clicker.downloads, `${home}/run`, `${home}/.mozilla`, userDataDir]) {
      await mkdir(dir, { recursive: true, mode: 0o700 });
    }
    if (program) {
      clicker.longhaul = new Longhaul(program, home);
      await clicker.longhaul.run("browser", "install", "--user-data-dir", userDataDir);
      // As for a user whose session has started it (`longhaul agent install`).
      await clicker.longhaul.run("agent");
    }
    clicker.records = path.join(home, ".local/state/longhaul/agent/records");
    clicker.browser = await BROWSERS[browser].launch({ home, downloads: clicker.downloads, extension: program && EXTENSION });
    return clicker;
  }

  async stop() {
    await this.browser?.close();
    await this.longhaul?.run("agent", "stop").catch(() => undefined);
    // The processes of the browser may write into its profile for some seconds yet.
    await rm(this.folder, { recursive: true, force: true, maxRetries: 20 });
  }

  /** Opens `page` and clicks the link `selector`; returns when the page saw the click, milliseconds since 1970. */
  async click(page, selector) {
    const { browser } = this;
    this.port = Number(new URL(page).port || 80);
    await browser.open(page);
    await browser.evaluate(`addEventListener("click", () => { document.documentElement.dataset.clicked = Date.now(); }, true)`);
    // As a reader does; the browser has ended its own work for the page.
    await sleep(1_000);
    this.before = await this.#received();
    await browser.click(selector);
    return Number(await browser.evaluate("return document.documentElement.dataset.clicked"));
  }

  /** Waits for the first bytes of the file, beyond a head, on a connection of the program that saves it. */
  async firstByte() {
    for (;;) {
      const now = Date.now();
      const received = await this.#received();
      if ([...received].some(([port, bytes]) => bytes - (this.before.get(port) ?? 0) > HEAD_BYTES)) return now;
      await sleep(CHECK_INTERVAL);
    }
  }

  /** Waits until the file has its final name and all of its bytes: neither browsers nor Longhaul name it so before. */
  async complete(name, bytes) {
    const file = path.join(this.downloads, name);
    for (;;) {
      const { size } = await stat(file).catch(() => ({ size: 0 }));
      if (size === bytes) return { at: Date.now(), file };
      await sleep(CHECK_INTERVAL);
    }
  }

  /** Returns the bytes received by each local port that is connected to the server. */
  async #received() {
    const { stdout } = await run("ss", ["-tinpHO", "dport", "=", `:${this.port}`]);
    const lines = stdout.split("\n").filter((line) => line.includes('"longhaul"') === Boolean(this.longhaul));
    return new Map(lines.filter(Boolean).map((line) => [
      line.trim().split(/\s+/)[3], Number(/bytes_received:(\d+)/.exec(line)?.[1] ?? 0),
    ]));
  }
}

export function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
