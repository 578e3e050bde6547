// Chromium: a download is paused as it appears, and cancelled once the agent has accepted; resumed otherwise. A small one is left alone.

import { api } from "./browser_api";
import type { RequestLog } from "./request_log";
import { fileName, withoutFolder } from "./rules";
import { loadSettings } from "./settings";
import type { Takeover } from "./takeover";

/** A download that is older, milliseconds, was begun in an earlier session. */
const MAX_AGE = 60_000;

/**
 * The least number of bytes that are still to come of a download that is offered. While a download is paused, Chromium completes its request
 * once the rest fits in a pipe (at most 2 MiB). Chromium identifies a request by its memory address (UrlDownloadHandlerID), which it reuses:
 * cancelling a download with a completed request can cancel a newer download. Seen in Chromium 156, 27 November 2026.
 */
const MIN_REST = 4 * 1024 * 1024;

/** Starts to listen; must be called while the service worker starts. */
export function watchChromiumDownloads(takeover: Takeover, log: RequestLog): void {
  api.downloads.onCreated.addListener((item) => void created(item, takeover, log));
}

async function created(item: chrome.downloads.DownloadItem, takeover: Takeover, log: RequestLog): Promise<void> {
  if (item.state !== "in_progress" || Date.now() - Date.parse(item.startTime) > MAX_AGE) return;
  // blob: and data: URLs are the page's own bytes: no server has them.
  if (!/^https?:/i.test(item.finalUrl) || item.byExtensionId) return;
  if (isNearlyWhole(item)) return;
  if (item.incognito && !(await loadSettings()).privateWindows) return;
  try {
    await api.downloads.pause(item.id);
  } catch {
    return; // It has ended already: too small to gain anything.
  }
  const [paused] = await api.downloads.search({ id: item.id });
  if (paused && isNearlyWhole(paused)) {
    await resume(item.id);
    return;
  }
  const taken = await takeover.offer({
    url: item.finalUrl,
    requested: item.url,
    method: "GET",
    size: item.totalBytes > 0 ? item.totalBytes : null,
    mediaType: item.mime ?? "",
    name: withoutFolder(item.filename) || fileName(log.find(item.finalUrl)?.disposition ?? "", item.finalUrl),
    privateWindow: item.incognito,
    // Chromium's store of private windows is the second.
    cookieStore: item.incognito ? "1" : "0",
  }).catch((error: unknown) => {
    console.error("the download stays with the browser:", error);
    return false;
  });
  if (!taken) {
    await resume(item.id);
    return;
  }
  await api.downloads.cancel(item.id).catch(() => undefined);
  await api.downloads.erase({ id: item.id });
}

/** Returns whether Chromium may complete the request while the download is paused; a download of unknown size counts as long. */
function isNearlyWhole(item: chrome.downloads.DownloadItem): boolean {
  return item.totalBytes > 0 && item.totalBytes - item.bytesReceived < MIN_REST;
}

/** Attempts to resume, and the time between two, milliseconds: a pause may take effect after the call for it has returned. */
const RESUME_ATTEMPTS = 20;
const RESUME_INTERVAL = 100;

async function resume(id: number): Promise<void> {
  for (let attempt = 0; attempt < RESUME_ATTEMPTS; attempt += 1) {
    await api.downloads.resume(id).catch(() => undefined);
    const [item] = await api.downloads.search({ id });
    if (!item?.paused) return;
    await new Promise((resolve) => setTimeout(resolve, RESUME_INTERVAL));
  }
}
