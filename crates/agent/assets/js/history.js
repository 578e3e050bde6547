// The last minute of one transfer's samples, as columns for the plots.

// At 100 samples a second this is a minute.
const MOST = 6000;
const SECOND = 1;

/** The columns: time, then what each series shows; a value that is not known is null, which the plots leave open. */
const COLUMNS = ["at", "moved", "burst", "second", "pace", "socket", "application", "cache", "rwin", "rtt", "data", "min",
  "streams", "lost", "reordered", "retransmits", "outOfOrder"];

export class History {
  columns = Object.fromEntries(COLUMNS.map((name) => [name, []]));
  /** What limited the transfer: `{from, to, by}` in seconds, in order. */
  limits = [];
  last = null;
  #secondAgo = 0;
  #isUpload;

  constructor(isUpload) {
    this.#isUpload = isUpload;
  }

  get length() {
    return this.columns.at.length;
  }

  get now() {
    return this.columns.at.at(-1) ?? 0;
  }

  /** Takes samples in the order of their time; one that is not later than the last is left out. */
  add(samples) {
    for (const sample of samples) {
      // Time runs from zero again where the transfer has started anew.
      if (this.length > 0 && sample.at < this.now - SECOND) this.#clear();
      if (this.length === 0 || sample.at > this.now) this.#push(sample);
    }
    if (this.length > MOST * 1.2) this.#trim(this.length - MOST);
    const open = this.limits.at(-1);
    if (open) open.to = this.now;
  }

  /** Takes what limits the transfer from now on. */
  limit(by) {
    const open = this.limits.at(-1);
    if (!by || open?.by === by) return;
    this.limits.push({ from: open?.to ?? this.now, to: this.now, by });
  }

  /** For which share of the time that is shown each limit held the transfer back, the largest first. */
  shares() {
    const start = this.columns.at[0] ?? 0;
    const times = new Map();
    for (const { from, to, by } of this.limits) {
      const time = to - Math.max(from, start);
      if (time > 0) times.set(by, (times.get(by) ?? 0) + time);
    }
    const whole = [...times.values()].reduce((sum, time) => sum + time, 0);
    return [...times].map(([by, time]) => ({ by, share: time / whole })).sort((a, b) => b.share - a.share);
  }

  #push(sample) {
    const { sockets, segments, page_cache: pages } = sample;
    const c = this.columns;
    const before = this.length - 1;
    while (this.#secondAgo < before && c.at[this.#secondAgo] < sample.at - SECOND) this.#secondAgo += 1;
    const since = (column, value, from) =>
      from < 0 || from >= this.length ? null : Math.max(0, value - column[from]) / (sample.at - c.at[from]);
    const bits = (value) => (value === null ? null : value * 8);
    const row = {
      at: sample.at,
      moved: sample.moved,
      burst: bits(since(c.moved, sample.moved, before)),
      second: bits(since(c.moved, sample.moved, this.#secondAgo)),
      pace: this.#isUpload ? sockets.pacing_bps ?? null : null,
      socket: this.#isUpload ? sockets.sent - sockets.acked : sockets.unread,
      application: segments ? segments.in_use * segments.size : null,
      // Pages are counted less often than sockets are read: between two counts the earlier one stands.
      cache: pages ? pages.dirty + pages.writeback : c.cache.at(-1) ?? null,
      rwin: (this.#isUpload ? sockets.peer_window : sockets.rwin) ?? null,
      rtt: sockets.rtt ?? null,
      data: sockets.data_rtt ?? null,
      min: sockets.min_rtt ?? null,
      streams: sockets.open,
      lost: since(c.retransmits, sockets.retransmits, this.#secondAgo),
      reordered: since(c.outOfOrder, sockets.out_of_order, this.#secondAgo),
      retransmits: sockets.retransmits,
      outOfOrder: sockets.out_of_order,
    };
    for (const name of COLUMNS) c[name].push(row[name]);
    this.last = { ...sample, page_cache: pages ?? this.last?.page_cache };
  }

  #trim(surplus) {
    for (const name of COLUMNS) this.columns[name].splice(0, surplus);
    this.#secondAgo = Math.max(0, this.#secondAgo - surplus);
    const start = this.columns.at[0];
    this.limits = this.limits.filter(({ to }) => to > start);
  }

  #clear() {
    for (const name of COLUMNS) this.columns[name].length = 0;
    this.#secondAgo = 0;
    this.limits = [];
  }
}
