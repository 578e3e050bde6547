// Has the agent connect to the server of a link that looks like a download, while the browser awaits its answer: an offer then needs
// no handshakes.

import { api } from "./browser_api";
import type { NativeHost } from "./native_host";
import { fileName, looksSaved, whyNot } from "./rules";
import { loadSettings } from "./settings";

/** Connections that are asked for within the time for which the agent holds them, milliseconds. */
const MOST = 8;
const HELD_FOR = 3_000;

type Request = chrome.webRequest.OnSendHeadersDetails & { incognito?: boolean };

export class EarlyConnection {
  private asked: number[] = [];

  constructor(private readonly host: NativeHost) {}

  /** Starts to listen; must be called while the background script starts. */
  listen(): void {
    api.webRequest.onSendHeaders.addListener(
      (request) => void this.requested(request).catch(() => undefined), // The offer reports what is wrong.
      { urls: ["http://*/*", "https://*/*"], types: ["main_frame", "sub_frame", "other"] },
    );
  }

  private async requested(request: Request): Promise<void> {
    const { url, method } = request;
    if (!looksSaved(url)) return;
    const download = { url, method, size: null, mediaType: "", name: fileName("", url), privateWindow: await isPrivate(request) };
    const reason = whyNot(download, await loadSettings());
    if ((reason !== null && reason !== "size unknown") || !this.admit(Date.now())) return;
    // The server alone: the link is asked for only once it is offered.
    await this.host.request({ type: "connect", url: `${new URL(url).origin}/` });
  }

  private admit(now: number): boolean {
    this.asked = this.asked.filter((at) => now - at < HELD_FOR);
    return this.asked.length < MOST && this.asked.push(now) > 0;
  }
}

/** Firefox says so with the request, Chromium with its tab; a request without a tab may be of any window. */
async function isPrivate(request: Request): Promise<boolean> {
  if (request.incognito !== undefined) return request.incognito;
  return request.tabId < 0 || (await api.tabs.get(request.tabId)).incognito;
}
