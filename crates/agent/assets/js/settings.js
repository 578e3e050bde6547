// The dialog with the agent's settings.

import * as api from "./api.js";
import { byId, make, setText } from "./dom.js";
import { parseRate, rate } from "./format.js";
import { t } from "./i18n.js";

const DAYS = ["daily", "mon-fri", "sat-sun"];

/** `told` is called with a text once the settings are saved. */
export function setUpSettings(told) {
  const dialog = byId("settings");
  byId("open-settings").addEventListener("click", async () => {
    const error = make("p", { class: "error", role: "alert" });
    const values = await api.settings().catch((failure) => {
      setText(error, failure.message);
      return {};
    });
    dialog.replaceChildren(form(dialog, values, error, told));
    dialog.showModal();
  });
}

function form(dialog, values, error, told) {
  const fields = {
    concurrent: make("input", { type: "number", min: 1, max: 64, required: true, value: values.concurrent ?? 3 }),
    limit: make("input", { value: values.limit_bps ? rate(values.limit_bps) : "", placeholder: "1 Gbit/s" }),
    directory: make("input", { value: values.directory ?? "", spellcheck: "false" }),
  };
  const rows = make("div", { class: "schedule" });
  (values.schedule ?? []).forEach((entry) => rows.append(scheduleRow(entry)));
  const readSchedule = () => [...rows.children].map((row) => row.read());
  const scheduleBefore = JSON.stringify(readSchedule());
  const labelled = (name) => make("label", {}, make("span", {}, t(`settings.${name}`)), fields[name]);
  const onsubmit = async (event) => {
    event.preventDefault();
    const limit = parseRate(fields.limit.value);
    const schedule = readSchedule();
    if (limit === undefined || schedule.some((entry) => entry.limit_bps === undefined)) return setText(error, t("add.rate"));
    // The agent stores what was set: its defaults and a rate that is rounded here stay as they are.
    const changes = {};
    const isChanged = ({ value, defaultValue }) => value.trim() !== defaultValue;
    if (isChanged(fields.concurrent)) changes.concurrent = Number(fields.concurrent.value);
    if (isChanged(fields.limit)) changes.limit_bps = limit;
    if (isChanged(fields.directory)) changes.directory = fields.directory.value.trim() || null;
    if (JSON.stringify(schedule) !== scheduleBefore) changes.schedule = schedule;
    return api.changeSettings(changes).then(() => {
      dialog.close();
      told(t("settings.saved"));
    }, (failure) => setText(error, failure.message));
  };
  return make("form", { class: "settings", onsubmit },
    make("h2", { id: "settings-title" }, t("settings")),
    labelled("concurrent"), labelled("limit"), labelled("directory"),
    make("fieldset", {},
      make("legend", {}, t("settings.schedule")), make("p", { class: "hint" }, t("settings.schedule.help")), rows,
      make("button", { type: "button", onclick: () => rows.append(scheduleRow({ days: "mon-fri", from: "08:00", to: "18:00" })) },
        t("settings.add"))),
    error,
    make("div", { class: "actions" },
      make("button", { class: "primary" }, t("settings.save")),
      make("button", { type: "button", onclick: () => dialog.close() }, t("settings.close"))));
}

/** Makes the fields of one entry of the schedule; `read` of the element returns it. */
function scheduleRow({ days, from, to, limit_bps: limit = null, concurrent = null }) {
  const names = DAYS.includes(days) ? DAYS : [...DAYS, days];
  const fields = {
    days: make("select", {}, names.map((name) =>
      make("option", { value: name, selected: name === days }, DAYS.includes(name) ? t(`days.${name}`) : name))),
    from: make("input", { type: "time", required: true, value: from }),
    to: make("input", { type: "time", required: true, value: to }),
    limit: make("input", { value: limit ? rate(limit) : "", placeholder: "100 Mbit/s" }),
    concurrent: make("input", { type: "number", min: 0, max: 64, value: concurrent ?? "" }),
  };
  const row = make("div", { class: "schedule-row" },
    Object.entries(fields).map(([name, field]) => make("label", {}, make("span", {}, t(`settings.${name}`)), field)),
    make("button", { type: "button", onclick: () => row.remove() }, t("settings.remove")));
  row.read = () => ({
    days: fields.days.value,
    from: fields.from.value,
    to: fields.to.value,
    limit_bps: parseRate(fields.limit.value),
    // What is left out takes the agent's default.
    concurrent: fields.concurrent.value === "" ? undefined : Number(fields.concurrent.value),
  });
  return row;
}
