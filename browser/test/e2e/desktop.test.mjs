// The extension's pages on a dark desktop, in Japanese, and by the keyboard.
import assert from "node:assert/strict";
import { test } from "node:test";

import { eventually, inEachBrowser } from "./session.mjs";

const JAPANESE = /[\u3040-\u30ff\u4e00-\u9fff]/;

inEachBrowser((session) => {
  const style = (name) => session.browser.evaluate(`return getComputedStyle(document.body).${name}`);
  const textOf = (selector) => session.browser.evaluate(`return document.querySelector("${selector}").textContent`);

  test("popup", async () => {
    await session.click("plain");
    await session.expectTaken("plain.bin");
    await session.openPopup();
    await eventually("the transfer is shown", () => session.browser.evaluate(`return document.querySelector("[data-state=done]") !== null`));
    await session.screenshot("popup-dark");
    assert.equal(await style("backgroundColor"), "rgb(27, 31, 36)");
    for (const selector of ["#options", "[data-state=done] .faint", "[data-action=open-folder]", ".explanation"]) {
      assert.match(await textOf(selector), JAPANESE, selector);
    }
  });

  test("options", async () => {
    await session.browser.openTab(session.browser.extensionPage("options/options.html"));
    await eventually("the program answers", () => session.browser.evaluate(`return document.getElementById("host").textContent !== ""`));
    await session.screenshot("options-dark");
    assert.equal(await style("backgroundColor"), "rgb(27, 31, 36)");
    const bare = await session.browser.evaluate(`return [...document.querySelectorAll("[data-text]")].filter((one) => one.textContent === "" || one.textContent === one.dataset.text).length`);
    assert.equal(bare, 0, "every label has a text");
    assert.match(await textOf("h1"), JAPANESE);
  });

  test("popup by the keyboard", async () => {
    await session.openPopup();
    await eventually("the transfer is shown", () => session.browser.evaluate(`return document.querySelector("[data-state=done]") !== null`));
    const focused = () => session.browser.evaluate(`return document.activeElement.dataset.action ?? document.activeElement.id`);
    const reached = [];
    for (let tabs = 0; tabs < 6 && !reached.includes("remove"); tabs += 1) {
      await session.browser.press("Tab");
      reached.push(await focused());
    }
    assert.deepEqual(reached.filter(Boolean), ["options", "open-folder", "remove"]);
    await session.browser.press("Enter");
    await eventually("it is removed", async () => (await session.longhaul.transfers()).length === 0);
  });
}, { language: "ja", dark: true });
