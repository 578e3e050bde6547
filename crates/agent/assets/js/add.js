// The form that adds transfers, and what is dropped on the page.

import * as api from "./api.js";
import { byId, setText, show } from "./dom.js";
import { parseRate } from "./format.js";
import { t } from "./i18n.js";

/** `added` is called with the transfers that the agent has taken. */
export function setUpAdding(added) {
  const form = byId("add");
  const field = byId("urls");
  const file = byId("metalink");
  const fail = (error) => setText(byId("add-error"), error?.message ?? error ?? "");

  const run = async (work) => {
    fail("");
    form.setAttribute("aria-busy", "true");
    try {
      added(await work());
      return true;
    } catch (error) {
      fail(error);
      return false;
    } finally {
      form.removeAttribute("aria-busy");
    }
  };
  const addMetalink = (chosen) => run(async () => (await api.addMetalink(await chosen.text())).transfers);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const lines = linesOf(field.value);
    if (lines.length === 0) {
      fail(t("add.empty"));
      field.focus();
    } else if (parseRate(byId("add-limit").value) === undefined) {
      fail(t("add.rate"));
      byId("add-limit").focus();
    } else if (await run(() => addLines(lines))) {
      form.reset();
      grow(field);
    }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  field.addEventListener("input", () => grow(field));
  byId("choose-metalink").addEventListener("click", () => file.click());
  file.addEventListener("change", async () => {
    if (file.files.length > 0) await addMetalink(file.files[0]);
    file.value = "";
  });
  setUpDropping(fail, addMetalink, (lines) => run(() => addLines(lines)));
}

const linesOf = (text) => text.split(/\r?\n/).map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));

/** Rows as the text has lines, up to eight. */
function grow(field) {
  field.rows = Math.min(8, Math.max(2, field.value.split("\n").length));
}

/** Adds lines with the form's options in one request: all or none. Several files never go to one, where they would replace each other. */
async function addLines(lines) {
  const options = chosenOptions();
  if (byId("add-mirrors").checked) return (await api.add({ kind: "get", urls: lines, ...options })).transfers;
  if (Object.keys(options).length === 0) return (await api.add({ urls_text: lines.join("\n") })).transfers;
  if (lines.length > 1 && options.output && !options.output.endsWith("/")) options.output += "/";
  return (await api.add(lines.map((line) => ({ kind: "get", urls: [line], ...options })))).transfers;
}

function chosenOptions() {
  const options = {};
  const output = byId("add-output").value.trim();
  const checksum = byId("add-checksum").value.trim();
  const limit = parseRate(byId("add-limit").value);
  if (output) options.output = output;
  if (checksum) options.checksum = checksum;
  if (limit) options.limit_bps = limit;
  if (byId("add-paused").checked) options.paused = true;
  return options;
}

function setUpDropping(fail, addMetalink, addDropped) {
  const target = byId("drop-target");
  // Entering a child fires `dragleave` for its parent, so entries are counted.
  let depth = 0;
  addEventListener("dragenter", (event) => {
    event.preventDefault();
    depth += 1;
    show(target, true);
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("dragleave", () => {
    depth -= 1;
    if (depth <= 0) show(target, false);
  });
  addEventListener("drop", async (event) => {
    event.preventDefault();
    depth = 0;
    show(target, false);
    const files = [...event.dataTransfer.files].filter((dropped) => /\.(meta4|metalink)$/i.test(dropped.name));
    const text = event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text/plain");
    const lines = linesOf(text);
    for (const dropped of files) await addMetalink(dropped);
    if (files.length === 0 && lines.length > 0) await addDropped(lines);
    if (files.length === 0 && lines.length === 0) fail(t("add.nofile"));
  });
}
