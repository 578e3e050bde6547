// The transfers that the page knows: the loaded front of the queue, in the agent's order.

import * as api from "./api.js";

const PAGE = 200;
// Structural changes are gathered for this long, so that 1,000 added links cost one request.
const GATHER_MS = 250;
// Where many rows are loaded, they are loaded anew less often.
const GATHER_LONG_MS = 2000;

/** States that a transfer does not leave by itself. */
export const ENDED = ["done", "failed", "cancelled"];

/** Emits `list` (rows or counts changed) and `change` (detail: one transfer). */
export class Store extends EventTarget {
  filter = null;
  total = 0;
  counts = {};
  order = [];
  transfers = new Map();
  /** Whether the agent does not answer: a transfer that was running is then in the state `lost`. */
  isLost = false;
  #next = null;
  #loading = null;
  #timer = null;
  #generation = 0;

  at(index) {
    return this.transfers.get(this.order[index]);
  }

  indexOf(id) {
    return this.order.indexOf(id);
  }

  setFilter(state) {
    this.filter = state;
    this.order = [];
    return this.reload();
  }

  /** Loads the front anew, as many rows as were there. */
  async reload() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const generation = ++this.#generation;
    const wanted = Math.max(PAGE, this.order.length);
    const order = [];
    let after = null;
    do {
      const page = await api.list(this.filter, PAGE, after);
      if (generation !== this.#generation) return;
      this.#take(page, order);
      after = page.next;
    } while (after !== null && order.length < wanted);
    this.order = order;
    this.#next = after;
    this.#loading = null;
    this.#emit("list");
  }

  /** Loads rows until the one at `index` is there; the caller is told by `list`. */
  ensure(index) {
    if (index < this.order.length || this.#next === null || this.#loading) return;
    const generation = this.#generation;
    this.#loading = (async () => {
      while (this.#next !== null && this.order.length <= index) {
        const page = await api.list(this.filter, PAGE, this.#next);
        if (generation !== this.#generation) return;
        this.#take(page, this.order);
        this.#next = page.next;
        this.#emit("list");
      }
    })().catch(() => this.#later()).finally(() => {
      this.#loading = null;
    });
  }

  /** Returns the numbers of running and of waiting transfers, and the rate of all together. */
  totals() {
    const { running = 0, queued = 0, scheduled = 0 } = this.counts;
    let goodput = 0;
    for (const { state, goodput_bps: bps } of this.transfers.values()) goodput += state === "running" ? bps : 0;
    return { active: running, waiting: queued + scheduled, goodput };
  }

  /** Forgets how running transfers stand; `reload` ends that. */
  lose() {
    this.isLost = true;
    for (const transfer of this.transfers.values()) {
      if (transfer.state !== "running") continue;
      Object.assign(transfer, { state: "lost", goodput_bps: 0, eta: null });
      this.#emit("change", transfer);
    }
    this.#emit("list");
  }

  /** Takes a transfer that the agent reports. */
  put(transfer) {
    const before = this.transfers.get(transfer.id);
    this.transfers.set(transfer.id, transfer);
    this.#emit("change", transfer);
    if (!before || before.state !== transfer.state || before.position !== transfer.position) this.#later();
    return before;
  }

  /** Takes the few numbers of a running transfer. */
  progress(values) {
    const transfer = this.transfers.get(values.id);
    if (!transfer) return;
    Object.assign(transfer, values);
    const left = transfer.size === null ? null : transfer.size - transfer.bytes;
    if (values.eta === undefined) transfer.eta = left !== null && values.goodput_bps > 0 ? (left * 8) / values.goodput_bps : null;
    this.#emit("change", transfer);
  }

  drop(id) {
    this.transfers.delete(id);
    this.order = this.order.filter((other) => other !== id);
    this.#later();
  }

  #take(page, order) {
    const known = new Set(order);
    for (const transfer of page.transfers) {
      this.transfers.set(transfer.id, transfer);
      if (!known.has(transfer.id)) order.push(transfer.id);
    }
    this.total = page.total;
    this.counts = page.counts;
    this.isLost = false;
  }

  #later() {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.reload().catch(() => {});
    }, this.order.length > 2 * PAGE ? GATHER_LONG_MS : GATHER_MS);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
