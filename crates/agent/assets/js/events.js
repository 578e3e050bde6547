// The agent's server-sent events, with a reconnect after each break.

import * as api from "./api.js";

const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 5000;
// The agent sends an event at least every 5 s.
const SILENCE_MS = 20_000;
const KINDS = ["transfer", "progress", "removed", "samples", "resync"];

/**
 * One stream of events. `handlers` has a function for each kind, `connected` (after each connect, also the first) and
 * `lost` (with "offline" or "signedout").
 */
export class Events {
  #handlers;
  #source = null;
  #timer = null;
  #silence = null;
  #wait = RETRY_FIRST_MS;
  #watched = null;

  constructor(handlers) {
    this.#handlers = handlers;
    // A hidden page is not drawn, so that measuring for it would be in vain.
    document.addEventListener("visibilitychange", () => this.#reconnect());
  }

  connect() {
    this.#open();
  }

  /** Asks for the samples of this transfer, and of none with null. */
  watch(id) {
    if (id === this.#watched) return;
    this.#watched = id;
    this.#reconnect();
  }

  #reconnect() {
    this.#wait = RETRY_FIRST_MS;
    this.#open();
  }

  #open() {
    clearTimeout(this.#timer);
    this.#source?.close();
    const source = new EventSource(api.eventsUrl(document.hidden ? null : this.#watched));
    this.#source = source;
    this.#heard(source);
    source.onopen = () => {
      this.#wait = RETRY_FIRST_MS;
      this.#handlers.connected();
    };
    source.onerror = () => this.#lost(source);
    for (const kind of [...KINDS, "stats", "alive"]) {
      source.addEventListener(kind, (event) => {
        this.#heard(source);
        this.#handlers[kind]?.(JSON.parse(event.data));
      });
    }
  }

  /** Waits for the next event: a frozen agent keeps its connections, but sends nothing. */
  #heard(source) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#handlers.lost("offline");
      this.#lost(source);
    }, SILENCE_MS);
  }

  async #lost(source) {
    source.close();
    if (source !== this.#source) return;
    clearTimeout(this.#silence);
    this.#timer = setTimeout(() => this.#open(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, RETRY_MOST_MS);
    const status = await api.stats().then(() => 200, (error) => error.status ?? 0);
    if (source === this.#source && status !== 200) this.#handlers.lost(status === 401 ? "signedout" : "offline");
  }
}
