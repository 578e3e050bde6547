// Continues a transfer whose link has expired: its page is opened, and the next matching download replaces the link.

import { api } from "./browser_api";
import type { Transfer } from "./messages";
import type { Download } from "./rules";

/** How long a replacement is waited for, milliseconds. */
const MAX_WAIT = 15 * 60_000;
/** Transfers whose cookie store is remembered. */
const MAX_STORES = 500;
/** The stores of private windows: Firefox's, Chromium's. */
const PRIVATE_STORES = ["firefox-private", "1"];

/** What the next matching download is compared with. */
export interface Awaited {
  transfer: number;
  name: string;
  size: number | null;
  /** The hosts of the link and of its page. */
  hosts: string[];
  /** The cookie store of the first download; undefined where it is not known, as for a transfer that the browser did not add. */
  store: string | undefined;
  at: number;
}

/** A download that may continue a transfer. */
export interface Candidate extends Download {
  /** The page that it was started from; "" where that is not known. */
  page: string;
  cookieStore: string | undefined;
}

/** Returns whether a download continues the awaited transfer: another identity's or another site's file of that size does not. */
export function isReplacement(awaited: Awaited, candidate: Candidate, now: number): boolean {
  if (now - awaited.at > MAX_WAIT) return false;
  if (awaited.store !== undefined && awaited.store !== candidate.cookieStore) return false;
  if (![candidate.url, candidate.page].some((url) => awaited.hosts.includes(hostOf(url)))) return false;
  return awaited.size !== null && candidate.size !== null
    ? awaited.size === candidate.size
    : awaited.name === candidate.name;
}

export class DeadLinks {
  /** The last update of the stores: the next begins after it, as each reads them all and writes them all. */
  private updated: Promise<void> = Promise.resolve();

  /** Remembers from which cookie store a transfer was started: its link is refreshed there. */
  async remember(transfer: Transfer, store: string | undefined): Promise<void> {
    if (store === undefined) return;
    const update = this.updated.then(() => saveStore({ transfer: transfer.id, name: transfer.name, store }));
    this.updated = update.catch(() => undefined);
    await update;
  }

  /** Opens the page that the transfer's link came from, in the same cookie store, and waits for the next matching download. */
  async open(transfer: Transfer): Promise<void> {
    // An agent whose queue is new counts anew: the name tells its transfers from those of before.
    const known = (await loadStores()).find((one) => one.transfer === transfer.id && one.name === transfer.name);
    const url = transfer.page_url ?? transfer.urls[0] ?? "";
    const awaited: Awaited = {
      transfer: transfer.id, name: transfer.name, size: transfer.size, store: known?.store, at: Date.now(),
      hosts: [url, ...transfer.urls].map(hostOf).filter(Boolean),
    };
    await api.storage.session.set({ awaited });
    if (/^https?:/i.test(url)) await openPage(url, known?.store);
  }

  /** Returns the transfer that the download continues. */
  async match(candidate: Candidate): Promise<number | null> {
    const { awaited } = (await api.storage.session.get("awaited")) as { awaited?: Awaited };
    return awaited && isReplacement(awaited, candidate, Date.now()) ? awaited.transfer : null;
  }

  async forget(): Promise<void> {
    await api.storage.session.remove("awaited");
  }
}

interface StoreOf {
  transfer: number;
  name: string;
  store: string;
}

/** Returns the transfers of private windows, whose names must not reach the disk, and then the others. */
async function loadStores(): Promise<StoreOf[]> {
  return [...(await storesIn(api.storage.session)), ...(await storesIn(api.storage.local))];
}

async function storesIn(area: chrome.storage.StorageArea): Promise<StoreOf[]> {
  const { stores } = (await area.get("stores")) as { stores?: StoreOf[] };
  return stores ?? [];
}

async function saveStore(entry: StoreOf): Promise<void> {
  const isPrivate = PRIVATE_STORES.includes(entry.store);
  for (const area of [api.storage.session, api.storage.local]) {
    const stores = (await storesIn(area)).filter((one) => one.transfer !== entry.transfer);
    if (isPrivate === (area === api.storage.session)) stores.push(entry);
    await area.set({ stores: stores.slice(-MAX_STORES) });
  }
}

/** Opens a page with the cookies of `store`; fails where its container has been removed, rather than as another identity. */
async function openPage(url: string, store: string | undefined): Promise<void> {
  if (store !== undefined && PRIVATE_STORES.includes(store)) {
    await api.windows.create({ url, incognito: true });
    return;
  }
  const place = store?.startsWith("firefox-") ? { url, cookieStoreId: store } : { url };
  // A private window takes no tabs of other stores.
  if ((await api.windows.getLastFocused()).incognito) await api.windows.create({ ...place, incognito: false });
  else await api.tabs.create(place);
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname : "";
}
