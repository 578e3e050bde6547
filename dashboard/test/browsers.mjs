// Starts real browsers, headless, in fresh profiles: Chromium by CDP, Firefox by WebDriver BiDi.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

const PROGRAMS = {
  chromium: [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"],
  firefox: [process.env.FIREFOX, "/usr/bin/firefox-esr", "/usr/bin/firefox"],
};

const program = (name) => PROGRAMS[name].find((path) => path && existsSync(path)) ?? null;

/** Starts a browser; `look` is the reader's language, and whether their desktop is dark. */
export async function launch(name, look = { language: "en-GB", dark: false }) {
  const profile = mkdtempSync(join(tmpdir(), `longhaul-${name}-`));
  const isChromium = name === "chromium";
  const browser = await puppeteer.launch({
    browser: isChromium ? "chrome" : "firefox",
    executablePath: program(name),
    headless: true,
    userDataDir: profile,
    // The sandbox of Chromium does not start as root, as which CI runs.
    args: isChromium ? ["--no-sandbox", "--disable-dev-shm-usage", `--lang=${look.language}`, `--accept-lang=${look.language}`] : [],
    extraPrefsFirefox: { "intl.accept_languages": look.language, "ui.systemUsesDarkTheme": look.dark ? 1 : 0 },
    env: { ...process.env, LANGUAGE: look.language.slice(0, 2) },
  });
  const close = async () => {
    await browser.close();
    // The processes of the browser may write into the profile for some seconds yet.
    rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
  };
  const page = await browser.newPage();
  if (isChromium) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: look.dark ? "dark" : "light" }]);
  }
  return { name, page, close };
}
