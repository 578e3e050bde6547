// Puts the page together: the queue, the chosen transfer, and the agent's events between them.

import { setUpAdding } from "./add.js";
import * as api from "./api.js";
import { byId, make, setText, show } from "./dom.js";
import { Events } from "./events.js";
import { count, duration, rate } from "./format.js";
import { language, setLanguage, t, translatePage } from "./i18n.js";
import { Queue } from "./queue.js";
import { setUpSettings } from "./settings.js";
import { Store } from "./store.js";
import { TransferView } from "./transfer.js";

// The browser sends the session's cookie below the session's path alone. Only pages of this port can read where that was.
const PAGE = "longhaul-page";
if (location.pathname !== "/") localStorage.setItem(PAGE, location.pathname);
else if (localStorage.getItem(PAGE)) location.replace(localStorage.getItem(PAGE) + location.hash);

const TOAST_MS = 4000;
// Thousands of added links change the totals once.
const TOTALS_MS = 250;

const store = new Store();
let toastTimer = null;
let totalsTimer = null;

function told(text) {
  setText(byId("toast"), text);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => setText(byId("toast"), ""), TOAST_MS);
}

const failed = (error) => told(error.message);

async function act(transfer, action) {
  try {
    if (action === "remove" || action === "delete") await api.remove(transfer.id, action === "delete");
    else await api.act(transfer.id, action);
  } catch (error) {
    failed(error);
  }
}

/** Moves a transfer by so many places among those that wait; -Infinity is the front. */
async function move(id, steps) {
  const waiting = store.order.filter((other) => ["queued", "paused", "scheduled"].includes(store.transfers.get(other).state));
  const from = waiting.indexOf(id);
  const to = Math.max(0, Math.min(waiting.length - 1, from + steps));
  if (from < 0 || from === to) return;
  const others = waiting.filter((other) => other !== id);
  await api.act(id, "move", { before: others[to] ?? null }).then(() => store.reload()).catch(failed);
}

const view = new TransferView({
  act,
  move,
  told,
  back() {
    choose(null);
    queue.focus();
  },
});
// There the transfer takes the queue's place, so that only opening shows it.
const narrow = matchMedia("(max-width: 900px)");
const queue = new Queue(store, {
  select: (id) => (narrow.matches ? queue.select(id) : choose(id)),
  open: (id) => choose(id, true),
  act,
  move,
});
const events = new Events({
  connected() {
    show(byId("banner"), false);
    store.reload().then(showChosen).catch(() => {});
    showFarm();
  },
  lost(how) {
    store.lose();
    setText(byId("banner"), t(how));
    byId("banner").dataset.t = how;
    show(byId("banner"), true);
  },
  transfer(transfer) {
    const before = store.put(transfer);
    const isNews = before && before.state !== transfer.state && ["done", "failed", "waiting-link"].includes(transfer.state);
    if (isNews) told(t("told", { name: transfer.name, state: t(`state.${transfer.state}`) }));
  },
  progress: (values) => store.progress(values),
  removed({ id }) {
    store.drop(id);
    if (id === view.id) choose(null);
  },
  // Events are missing: this page was too slow for them, or transfers have changed without messages of their own.
  resync() {
    store.reload().then(showChosen).catch(() => {});
    showFarm();
  },
  samples: ({ id, samples }) => view.samples(id, samples),
});

function showTotals() {
  clearTimeout(totalsTimer);
  totalsTimer = null;
  const { active, waiting, goodput } = store.totals();
  const speed = rate(goodput);
  setText(byId("totals"), store.isLost ? t("state.lost") : t("totals", { active: count(active), waiting: count(waiting), rate: speed }));
  const of = store.isLost ? t("state.lost") : active > 0 ? speed : null;
  document.title = [of, "Longhaul"].filter(Boolean).join(" · ");
}

/** Shows the hosts of the farm, if the agent is in one. */
async function showFarm() {
  const farm = await api.farm().catch(() => null);
  const hosts = (farm?.hosts ?? []).map((host) => {
    const shown = { host: host.name, n: count(host.running), rate: rate(host.goodput_bps), time: duration(host.seen_seconds) };
    return make("li", {}, t(host.is_alive ? "farm.host" : "farm.lost", shown));
  });
  byId("farm").replaceChildren(...hosts);
  show(byId("farm"), hosts.length > 0);
}

/** The address names the chosen transfer, so that a reload shows it again. */
function chosen() {
  const match = /^#\/(\d+)$/.exec(location.hash);
  return match ? Number(match[1]) : null;
}

/** Shows a transfer. One that is opened gets the focus, and the browser's Back leads from it to the one before. */
function choose(id, isOpened = false) {
  const address = id === null ? "#/" : `#/${id}`;
  if (isOpened && location.hash !== address) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  showChosen().then(() => isOpened && view.focus());
}

async function showChosen() {
  const id = chosen();
  if (id !== null && !store.transfers.has(id)) {
    await api.get(id).then((transfer) => store.transfers.set(id, transfer), () => {});
  }
  if (id !== chosen()) return;
  const transfer = store.transfers.get(id) ?? null;
  const isOther = transfer?.id !== view.id;
  view.show(transfer);
  if (transfer) queue.select(transfer.id);
  watch(transfer);
  if (transfer && isOther) {
    await api.samples(id, 0).then(({ samples }) => view.samples(id, samples), () => {});
  }
}

/** Sampling costs the agent time, so only a running transfer that is shown is sampled. */
function watch(transfer) {
  events.watch(transfer?.state === "running" ? transfer.id : null);
}

store.addEventListener("list", showTotals);
store.addEventListener("change", ({ detail: transfer }) => {
  totalsTimer ??= setTimeout(showTotals, TOTALS_MS);
  if (transfer.id !== view.id) return;
  view.show(transfer);
  watch(transfer);
});

byId("language").value = language();
byId("language").addEventListener("change", ({ target }) => {
  setLanguage(target.value);
  queue.redraw();
  view.redraw();
  showTotals();
});
addEventListener("hashchange", showChosen);
addEventListener("popstate", showChosen);
setUpAdding((transfers) => {
  told(transfers.length === 1 ? t("added.one", { name: transfers[0].name }) : t("added.many", { n: count(transfers.length) }));
  for (const transfer of transfers) store.put(transfer);
  if (transfers.length === 1) choose(transfers[0].id);
});
setUpSettings(told);
translatePage();
events.connect();
