// The list of transfers. Only the rows in view are elements, so that 10,000 transfers cost what twenty do.

import { byId, make, setAttribute, setText, show } from "./dom.js";
import { bytes, count, duration, percent, rate, shareDone } from "./format.js";
import { t } from "./i18n.js";
import { ENDED } from "./store.js";

const ROW_PX = 64;
// Rows above and below the view that are elements too.
const MARGIN_ROWS = 4;
const STATES = ["running", "queued", "paused", "waiting-link", "scheduled", "done", "failed", "cancelled"];

export class Queue {
  #store;
  #box = byId("queue");
  #space = make("div", { class: "queue-space", role: "presentation" });
  #rows = new Map();
  #selected = null;
  #frame = null;
  #on;

  /** `on` has `select(id)`, `open(id)`, `act(transfer, action)` and `move(id, steps)`. */
  constructor(store, on) {
    this.#store = store;
    this.#on = on;
    this.#box.append(this.#space);
    this.#box.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.#box.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#schedule()).observe(this.#box);
    store.addEventListener("list", () => {
      this.#filters();
      this.#schedule();
    });
    store.addEventListener("change", ({ detail }) => {
      const row = this.#rows.get(detail.id);
      if (row) fill(row, detail);
    });
  }

  /** Draws all anew, as after a change of language. */
  redraw() {
    this.#rows.forEach((row) => row.element.remove());
    this.#rows.clear();
    this.#filters();
    this.#schedule();
  }

  select(id) {
    this.#selected = id;
    this.#schedule();
  }

  focus() {
    this.#box.focus();
  }

  #schedule() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.#draw();
    });
  }

  #draw() {
    const { total } = this.#store;
    show(byId("queue-empty"), total === 0);
    show(this.#box, total > 0);
    show(byId("queue-keys"), total > 0);
    this.#space.style.height = `${total * ROW_PX}px`;
    const first = Math.max(0, Math.floor(this.#box.scrollTop / ROW_PX) - MARGIN_ROWS);
    const inView = Math.ceil(this.#box.clientHeight / ROW_PX) + 2 * MARGIN_ROWS;
    const last = Math.min(total, first + inView);
    this.#store.ensure(last - 1);

    const shown = new Set();
    for (let index = first; index < last; index += 1) {
      const transfer = this.#store.at(index);
      if (!transfer) break;
      shown.add(transfer.id);
      this.#place(transfer, index, total);
    }
    for (const [id, row] of this.#rows) {
      if (!shown.has(id)) {
        row.element.remove();
        this.#rows.delete(id);
      }
    }
    const isShown = shown.has(this.#selected);
    setAttribute(this.#box, "aria-activedescendant", isShown ? `row-${this.#selected}` : null);
  }

  #place(transfer, index, total) {
    let row = this.#rows.get(transfer.id);
    if (!row) {
      row = makeRow(transfer.id, () => this.#on.open(transfer.id));
      this.#rows.set(transfer.id, row);
      this.#space.append(row.element);
    }
    row.element.style.transform = `translateY(${index * ROW_PX}px)`;
    setAttribute(row.element, "aria-posinset", index + 1);
    setAttribute(row.element, "aria-setsize", total);
    setAttribute(row.element, "aria-selected", transfer.id === this.#selected);
    fill(row, transfer);
  }

  #filters() {
    const { counts, filter } = this.#store;
    const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
    const choices = [[null, t("all"), all], ...STATES.map((state) => [state, t(`state.${state}`), counts[state] ?? 0])];
    const buttons = choices
      .filter(([state, , n]) => state === null || n > 0 || state === filter)
      .map(([state, name, n]) => make("button", {
        type: "button", "aria-pressed": state === filter, "data-state": state ?? "all",
        onclick: () => this.#store.setFilter(state),
      }, `${name} `, make("span", { class: "n" }, count(n))));
    const box = byId("filters");
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    box.replaceChildren(...buttons);
    if (focused) box.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  #key(event) {
    const index = this.#store.indexOf(this.#selected);
    const transfer = this.#store.at(index);
    const page = Math.max(1, Math.floor(this.#box.clientHeight / ROW_PX) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (steps !== undefined && event.altKey && transfer) this.#on.move(transfer.id, Math.sign(steps));
    else if (steps !== undefined) this.#step(index, steps);
    else if (event.key === "Enter" && transfer) this.#on.open(transfer.id);
    else if (event.key === " " && transfer) this.#on.act(transfer, transfer.state === "paused" ? "resume" : "pause");
    else if (event.key === "Delete" && transfer) this.#on.act(transfer, ENDED.includes(transfer.state) ? "remove" : "cancel");
    else return;
    event.preventDefault();
  }

  #step(index, steps) {
    const last = this.#store.total - 1;
    const to = Math.min(last, Math.max(0, index < 0 ? (steps === Infinity ? last : 0) : index + steps));
    this.#store.ensure(to);
    const transfer = this.#store.at(Math.min(to, this.#store.order.length - 1));
    const top = to * ROW_PX;
    if (top < this.#box.scrollTop) this.#box.scrollTop = top;
    else if (top + ROW_PX > this.#box.scrollTop + this.#box.clientHeight) {
      this.#box.scrollTop = top + ROW_PX - this.#box.clientHeight;
    }
    if (transfer) this.#on.select(transfer.id);
  }
}

function makeRow(id, onclick) {
  const parts = {
    name: make("span", { class: "row-name" }),
    rate: make("span", { class: "row-rate" }),
    bar: make("span", { class: "row-fill" }),
    state: make("span", { class: "state" }),
    figures: make("span", { class: "row-figures" }),
    left: make("span", { class: "row-left" }),
  };
  const element = make("div", { class: "row", role: "option", id: `row-${id}`, onclick },
    make("span", { class: "row-line" }, parts.name, parts.rate),
    make("span", { class: "row-track" }, parts.bar),
    make("span", { class: "row-line small" }, parts.state, parts.figures, parts.left));
  return { element, ...parts };
}

function fill(row, transfer) {
  const { state } = transfer;
  const share = shareDone(transfer);
  setAttribute(row.element, "data-state", state);
  setText(row.name, transfer.name || transfer.urls[0] || "");
  setText(row.rate, state === "running" ? rate(transfer.goodput_bps) : "");
  row.bar.style.transform = `scaleX(${share.toFixed(4)})`;
  setText(row.state, t(`state.${state}`));
  setText(row.figures, figures(transfer, share));
  setText(row.left, state === "running" && transfer.eta !== null ? t("row.left", { time: duration(transfer.eta) }) : "");
}

function figures(transfer, share) {
  const { host } = transfer;
  return host ? t("row.on", { figures: amounts(transfer, share), host }) : amounts(transfer, share);
}

function amounts({ state, size, bytes: present, units }, share) {
  if (units) return t("row.units", { done: count(units.done), total: count(units.total), bytes: bytes(present) });
  if (state === "done") return bytes(size ?? present);
  if (size === null) return present > 0 ? bytes(present) : "";
  const amount = t("row.of", { bytes: bytes(present), size: bytes(size) });
  return state === "queued" && present === 0 ? bytes(size) : `${percent(share)} · ${amount}`;
}
