// The options page.

import { api, text } from "../browser_api";
import { loadSettings, parseHostRules, parseTypes, saveSettings } from "../settings";

function field<T extends HTMLElement = HTMLInputElement>(id: string): T {
  return document.getElementById(id) as T;
}

async function show(): Promise<void> {
  const settings = await loadSettings();
  field("enabled").checked = settings.enabled;
  field("minimum").value = String(settings.minimumMiB);
  field("answer").value = String(settings.answerSeconds);
  field<HTMLTextAreaElement>("hosts").value = settings.hosts.map((rule) => `${rule.host} ${rule.action}`).join("\n");
  field("types").value = settings.excludedTypes.join(", ");
  field("private").checked = settings.privateWindows;
  field("notify").checked = settings.notify;
}

async function save(event: SubmitEvent): Promise<void> {
  event.preventDefault();
  const hosts = parseHostRules(field<HTMLTextAreaElement>("hosts").value);
  const types = parseTypes(field("types").value);
  const status = field("status");
  const isBad = hosts.bad !== null || types.bad !== null;
  status.classList.toggle("bad", isBad);
  if (hosts.bad !== null) status.textContent = text(`optionBad_${hosts.bad.why}`, hosts.bad.line);
  else if (types.bad !== null) status.textContent = text("optionBad_type", types.bad);
  if (isBad) return;
  await saveSettings({
    enabled: field("enabled").checked,
    minimumMiB: field("minimum").valueAsNumber,
    answerSeconds: field("answer").valueAsNumber,
    hosts: hosts.rules,
    excludedTypes: types.types,
    privateWindows: field("private").checked,
    notify: field("notify").checked,
  });
  status.textContent = text("optionSaved");
}

/** Shows whether the program answers: the first thing to look at when nothing is taken over. */
async function checkHost(): Promise<void> {
  const reply = (await api.runtime.sendMessage({ type: "hello" })) as
    | { ok: true; result: { version: string } }
    | { ok: false; error: { code: string; message: string } };
  const host = field("host");
  host.classList.toggle("bad", !reply.ok);
  if (reply.ok) host.textContent = text("hostFound", reply.result.version);
  else host.textContent = reply.error.code === "no-host" ? text("noticeNoHostBody") : reply.error.message;
}

document.documentElement.lang = api.i18n.getUILanguage();
for (const labelled of document.querySelectorAll<HTMLElement>("[data-text]")) {
  labelled.textContent = text(labelled.dataset["text"] ?? "");
}
document.title = text("optionsTitle");
field<HTMLFormElement>("form").addEventListener("submit", (event) => void save(event));
void show();
void checkHost();
