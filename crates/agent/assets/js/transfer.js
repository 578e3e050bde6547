// One transfer: what it does now, why it is no faster, and what can be done with it.

import * as api from "./api.js";
import { Buffers } from "./buffers.js";
import { Charts } from "./charts.js";
import { byId, make, setAttribute, setText, show } from "./dom.js";
import { bytes, count, duration, milliseconds, moment, parseRate, percent, rate, shareDone } from "./format.js";
import { History } from "./history.js";
import { t } from "./i18n.js";
import { ENDED } from "./store.js";

// Drawing takes at most one part in so many of the time: on a host whose cores are busy with the transfer, the page is drawn
// less often.
const DRAW_ONE_IN = 100;
const DRAW_MOST_MS = 2000;

const TILES = ["goodput", "burst", "rtt", "rwin", "streams", "pace", "retransmits", "reordered"];

/** Which actions each state offers; those that are no call of the API are handled by the page. */
const ACTIONS = {
  running: ["pause", "cancel"],
  queued: ["pause", "cancel", "first", "up", "down"],
  scheduled: ["pause", "cancel"],
  paused: ["resume", "cancel", "refresh", "first", "up", "down"],
  "waiting-link": ["retry", "cancel"],
  failed: ["retry", "refresh", "report", "remove", "delete"],
  cancelled: ["retry", "remove", "delete"],
  done: ["report", "remove"],
  lost: [],
};

export class TransferView {
  #box = byId("transfer");
  #on;
  #transfer = null;
  #shape = null;
  #parts = null;
  #history = null;
  #frame = null;
  #due = 0;

  /** `on` has `act(transfer, action, body)`, `move(id, steps)`, `back()` and `failed(error)`. */
  constructor(on) {
    this.#on = on;
    this.#box.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.target.closest("dialog")) this.#on.back();
    });
  }

  get id() {
    return this.#transfer?.id ?? null;
  }

  focus() {
    this.#box.focus({ preventScroll: true });
    this.#box.scrollTop = 0;
  }

  /** Shows a transfer, or with null that none is chosen. */
  show(transfer) {
    const isOther = transfer?.id !== this.#transfer?.id;
    if (isOther) {
      this.#history = transfer && new History(transfer.kind === "put");
      this.#due = 0;
    }
    this.#transfer = transfer;
    document.body.classList.toggle("has-transfer", transfer !== null);
    // Elements are made anew only where others are needed: focus and what was typed survive.
    const shape = transfer && [transfer.id, transfer.state, transfer.urls.join(" ")].join(" ");
    if (shape !== this.#shape) this.#build(shape, isOther);
    if (transfer) this.#fill();
  }

  /** Draws all anew, as after a change of language. */
  redraw() {
    this.#shape = undefined;
    this.show(this.#transfer);
  }

  /** Takes samples of the transfer that is shown. */
  samples(id, samples) {
    if (id !== this.id || samples.length === 0) return;
    this.#history.add(samples);
    this.#history.limit(this.#transfer.limited_by);
    this.#draw();
  }

  #draw() {
    if (performance.now() < this.#due) return;
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      const began = performance.now();
      const { last } = this.#history ?? {};
      if (!last || !this.#parts?.live) return;
      show(this.#parts.waiting, false);
      show(this.#parts.live, true);
      this.#parts.buffers.draw(last);
      this.#parts.charts.draw();
      this.#tiles(last);
      this.#due = began + Math.min(DRAW_MOST_MS, (performance.now() - began) * DRAW_ONE_IN);
    });
  }

  #tiles({ sockets }) {
    const column = (name) => this.#history.columns[name].at(-1) ?? null;
    const values = {
      goodput: rate(column("second")),
      burst: rate(column("burst")),
      rtt: milliseconds(sockets.rtt),
      rwin: bytes(sockets.rwin),
      streams: count(sockets.open),
      pace: rate(column("pace")),
      retransmits: count(sockets.retransmits),
      reordered: count(sockets.out_of_order),
    };
    for (const name of TILES) setText(this.#parts.tiles[name], values[name]);
  }

  #build(shape, isOther) {
    const focused = this.#box.contains(document.activeElement) ? document.activeElement.dataset.action ?? "box" : null;
    this.#parts?.charts?.destroy();
    this.#shape = shape;
    this.#parts = null;
    if (!this.#transfer) {
      this.#box.replaceChildren(make("p", { class: "empty", id: "no-transfer" }, t("transfer.none")));
      return;
    }
    const parts = this.#parts = this.#makeParts();
    this.#box.replaceChildren(...[
      parts.head, parts.actions, parts.progress, this.#trouble(), parts.why, parts.waiting, parts.live, this.#details(),
    ].filter(Boolean));
    if (this.#history.last && parts.live) this.#draw();
    // The button that was pressed is gone; the keyboard's place must not be.
    if (focused && !isOther) (this.#box.querySelector(`[data-action="${focused}"]`) ?? this.#box.querySelector(".actions button") ?? this.#box).focus();
  }

  #makeParts() {
    const { state, kind } = this.#transfer;
    const isLive = ["running", "paused", "queued"].includes(state);
    const bar = make("span", { class: "row-fill" });
    const parts = {
      name: make("h2", { id: "transfer-name" }),
      state: make("span", { class: "state chip", "data-state": state }, t(`state.${state}`)),
      bar,
      track: make("div", { class: "row-track large", role: "progressbar", "aria-label": t("transfer.progress"),
        "aria-valuemin": 0, "aria-valuemax": 100 }, bar),
      figures: make("p", { class: "progress-figures" }),
      actions: make("div", { class: "actions" }, ACTIONS[state].map((action) => this.#action(action))),
      whyTitle: make("h3", {}),
      whyText: make("p", {}),
      advice: make("ul", { class: "advice" }),
      waiting: make("p", { class: "empty", hidden: state !== "running" }, t("transfer.waiting")),
    };
    parts.head = make("div", { class: "transfer-head" },
      make("button", { type: "button", class: "back", onclick: () => this.#on.back() }, `← ${t("transfer.back")}`),
      make("div", { class: "title-line" }, parts.name, parts.state));
    parts.progress = make("div", { class: "progress", "data-state": state }, parts.track, parts.figures);
    parts.why = make("div", { class: "why card" }, parts.whyTitle, parts.whyText, parts.advice);
    if (isLive) {
      parts.tiles = Object.fromEntries(TILES.map((name) => [name, make("dd", {}, "–")]));
      parts.buffers = new Buffers(kind === "put");
      parts.charts = new Charts(this.#history, kind === "put");
      const tiles = TILES.map((name) => make("div", { class: "tile" }, make("dt", {}, t(`tile.${name}`)), parts.tiles[name]));
      parts.live = make("div", { class: "live", hidden: true },
        make("dl", { class: "tiles" }, tiles), parts.buffers.element, parts.charts.element);
    }
    return parts;
  }

  #action(action) {
    const { id } = this.#transfer;
    const label = t(`action.${action}`);
    if (action === "report") {
      return make("a", { class: "button primary", href: api.reportUrl(id), target: "_blank", rel: "noopener" }, label);
    }
    const moves = { first: -Infinity, up: -1, down: 1 };
    const isPrimary = ["pause", "resume", "retry"].includes(action);
    const onclick = () => {
      if (action in moves) this.#on.move(id, moves[action]);
      else if (action === "refresh") this.#showRefresh();
      else this.#on.act(this.#transfer, action);
    };
    const look = isPrimary ? "primary" : ["cancel", "remove", "delete"].includes(action) ? "danger" : "";
    return make("button", { type: "button", class: look, "data-action": action, onclick }, label);
  }

  #trouble() {
    const { state, error } = this.#transfer;
    if (state === "waiting-link") return this.#refreshForm();
    if (state === "failed" && error) {
      return make("div", { class: "card trouble" }, make("h3", {}, t("error.title")), make("p", {}, error.message));
    }
    return null;
  }

  #showRefresh() {
    const form = this.#box.querySelector("form.refresh") ?? this.#refreshForm();
    this.#parts.progress.after(form);
    form.querySelector("input").focus();
  }

  #refreshForm() {
    const { id, error, page_url: page, state } = this.#transfer;
    const input = make("input", { type: "url", required: true, id: "fresh-link", spellcheck: "false" });
    const told = make("p", { class: "error", role: "alert" });
    const onsubmit = async (event) => {
      event.preventDefault();
      try {
        await api.act(id, "refresh", { url: input.value.trim() });
        event.target.remove();
      } catch (failure) {
        setText(told, failure.message);
      }
    };
    const isExpired = state === "waiting-link";
    return make("form", { class: "card refresh trouble", onsubmit },
      isExpired ? make("h3", {}, t("refresh.title")) : null,
      isExpired && error ? make("p", {}, error.message) : null,
      isExpired ? make("p", {}, t("refresh.text")) : null,
      isWeb(page) ? make("p", {}, make("a", { href: page, target: "_blank", rel: "noopener noreferrer" }, t("refresh.page"))) : null,
      make("label", { for: "fresh-link" }, t("refresh.label")),
      make("div", { class: "field-row" }, input, make("button", { class: "primary", "data-action": "use-link" }, t("refresh.button"))),
      told);
  }

  #fill() {
    const transfer = this.#transfer;
    const share = shareDone(transfer);
    setText(this.#parts.name, transfer.name || transfer.urls[0] || "");
    this.#parts.bar.style.transform = `scaleX(${share.toFixed(4)})`;
    setAttribute(this.#parts.track, "aria-valuenow", Math.round(share * 100));
    setText(this.#parts.figures, this.#figures(share));
    this.#why();
  }

  #figures(share) {
    const { state, size, bytes: present, units, goodput_bps: goodput, eta, seconds } = this.#transfer;
    const shown = units && t("row.units", { done: count(units.done), total: count(units.total), bytes: bytes(present) });
    if (state === "done") {
      return [shown ?? bytes(size ?? present), `${t("transfer.mean")} ${rate(goodput)}`, `${t("transfer.took")} ${duration(seconds)}`].join(" · ");
    }
    const ofSize = size === null ? bytes(present) : `${percent(share)} · ${t("row.of", { bytes: bytes(present), size: bytes(size) })}`;
    const amount = shown ?? ofSize;
    if (state !== "running") return amount;
    const left = eta === null ? null : t("row.left", { time: duration(eta) });
    return [amount, rate(goodput), left].filter(Boolean).join(" · ");
  }

  #why() {
    const { state, limited_by: by, advice } = this.#transfer;
    const { why, whyTitle, whyText, advice: list } = this.#parts;
    const isShown = Boolean(by) && ["running", "paused", "done"].includes(state);
    show(why, isShown || state === "running");
    setAttribute(why, "data-limit", by || null);
    setText(whyTitle, by ? t(state === "running" ? "why.running" : "why.done", { limit: t(`limit.${by}`) }) : t("why.none"));
    setText(whyText, by ? t(`explain.${by}`) : "");
    const further = advice ?? [];
    if (list.dataset.shown !== further.join("\n")) {
      list.dataset.shown = further.join("\n");
      list.replaceChildren(...further.map((sentence) => make("li", {}, sentence)));
    }
  }

  #details() {
    const { urls, path, added, started, ended, digest, page_url: page, state } = this.#transfer;
    const rows = [
      ["from", urls.map((url) => make("span", { class: "url" }, url))],
      ["to", path ? [path] : null],
      ["page", isWeb(page) ? [make("a", { href: page, target: "_blank", rel: "noopener noreferrer" }, page)] : null],
      ["digest", digest ? [make("code", {}, digest)] : null],
      ["added", [moment(added)]],
      ["started", started ? [moment(started)] : null],
      ["ended", ended ? [moment(ended)] : null],
    ];
    return make("div", { class: "card details" }, make("h3", {}, t("transfer.details")),
      make("dl", {}, rows.filter(([, values]) => values).map(([name, values]) =>
        make("div", {}, make("dt", {}, t(`transfer.${name}`)), values.map((value) => make("dd", {}, value))))),
      ENDED.includes(state) ? null : this.#knobs());
  }

  #knobs() {
    const { id, limit_bps: limit, priority } = this.#transfer;
    const limitField = make("input", { value: limit ? rate(limit) : "", placeholder: "500 Mbit/s" });
    const priorityField = make("input", { type: "number", min: -100, max: 100, value: priority });
    const told = make("p", { class: "error", role: "alert" });
    const onsubmit = async (event) => {
      event.preventDefault();
      const bps = parseRate(limitField.value);
      if (bps === undefined) return setText(told, t("add.rate"));
      setText(told, "");
      return api.change(id, { limit_bps: bps, priority: Number(priorityField.value) })
        .then(() => this.#on.told(t("transfer.applied")), (error) => setText(told, error.message));
    };
    return make("form", { class: "knobs", onsubmit },
      make("label", {}, make("span", {}, t("transfer.limit")), limitField),
      make("label", {}, make("span", {}, t("transfer.priority")), priorityField),
      make("button", {}, t("transfer.apply")), told);
  }
}

/** Only such addresses become links: an address of another scheme could run a script. */
function isWeb(address) {
  return /^https?:\/\//i.test(address ?? "");
}
