// The three buffers between wire and disk as bars: how full each is, in the order that the bytes pass them.

import { make, setAttribute, setText } from "./dom.js";
import { bytes, percent } from "./format.js";
import { t } from "./i18n.js";

const NAMES = ["socket", "application", "cache"];
// The page cache has no fixed size: its bar is full at the most that was dirty, and at this much at least.
const MIN_CACHE = 64 * 2 ** 20;

export class Buffers {
  element;
  #bars = new Map();
  #mostDirty = MIN_CACHE;
  #isUpload;

  constructor(isUpload) {
    this.#isUpload = isUpload;
    const order = isUpload ? [...NAMES].reverse() : NAMES;
    const ends = isUpload ? ["disk", "network"] : ["network", "disk"];
    this.element = make("div", { class: "buffers card" },
      make("h3", {}, t("buffers.title")),
      make("div", { class: "pipeline" },
        make("span", { class: "end" }, t(`buffer.${ends[0]}`)),
        order.map((name) => this.#bar(name)),
        make("span", { class: "end" }, t(`buffer.${ends[1]}`))));
  }

  #bar(name) {
    const title = t(name === "socket" && this.#isUpload ? "buffer.socket.send" : `buffer.${name}`);
    const fill = make("span", { class: `fill fill-${name}` });
    const share = make("span", { class: "share" }, "–");
    const figures = make("span", { class: "figures" }, "–");
    const meter = make("div", {
      class: "tank", role: "meter", "aria-label": title, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 0,
    }, fill, share);
    this.#bars.set(name, { fill, share, figures, meter });
    return make("div", { class: `buffer buffer-${name}` }, make("span", { class: "buffer-name" }, title), meter, figures);
  }

  /** Shows a sample. */
  draw({ sockets, segments, page_cache: pages }) {
    if (this.#isUpload) {
      const flight = Math.max(0, sockets.sent - sockets.acked);
      this.#show("socket", flight, Math.max(sockets.cwnd ?? 0, flight));
    } else {
      this.#show("socket", sockets.unread, sockets.unread + (sockets.rwin ?? 0));
    }
    this.#show("application", segments ? segments.in_use * segments.size : null, segments ? segments.count * segments.size : null);
    const dirty = pages ? pages.dirty + pages.writeback : null;
    this.#mostDirty = Math.max(this.#mostDirty, dirty ?? 0);
    this.#show("cache", dirty, pages ? this.#mostDirty : null);
  }

  #show(name, value, capacity) {
    const { fill, share, figures, meter } = this.#bars.get(name);
    const part = value !== null && capacity > 0 ? Math.min(1, value / capacity) : 0;
    fill.style.transform = `scaleX(${part.toFixed(3)})`;
    setText(share, value === null ? "–" : percent(part));
    const text = value === null ? "–" : t("buffer.of", { value: bytes(value), capacity: bytes(capacity) });
    setText(figures, text);
    setAttribute(meter, "aria-valuenow", Math.round(part * 100));
    setAttribute(meter, "aria-valuetext", text);
  }
}
