// Continues a transfer whose link has expired: its page is opened, and the next matching download replaces the link.

import { api } from "./browser_api";
import type { Transfer } from "./messages";
import type { Download } from "./rules";

/** How long a replacement is waited for, milliseconds. */
const MAX_WAIT = 15 * 60_000;

interface Awaited {
  transfer: number;
  name: string;
  size: number | null;
  at: number;
}

export class DeadLinks {
  /** Opens the page that the transfer's link came from, and waits for the next matching download. */
  async open(transfer: Transfer): Promise<void> {
    const awaited: Awaited = { transfer: transfer.id, name: transfer.name, size: transfer.size, at: Date.now() };
    await api.storage.session.set({ awaited });
    const url = transfer.page_url ?? transfer.urls[0];
    if (url && /^https?:/i.test(url)) await api.tabs.create({ url });
  }

  /** Returns the transfer that the download continues: it has the size, and the name where the size is not known. */
  async match(download: Download): Promise<number | null> {
    const { awaited } = (await api.storage.session.get("awaited")) as { awaited?: Awaited };
    if (!awaited || Date.now() - awaited.at > MAX_WAIT) return null;
    const matches = awaited.size !== null && download.size !== null
      ? awaited.size === download.size
      : awaited.name === download.name;
    return matches ? awaited.transfer : null;
  }

  async forget(): Promise<void> {
    await api.storage.session.remove("awaited");
  }
}
