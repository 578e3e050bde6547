// The background script: listens to downloads, and answers the popup.

import { api, isFirefox, text } from "./browser_api";
import { BurstGuard } from "./burst_guard";
import { watchChromiumDownloads } from "./chromium_downloads";
import { DeadLinks } from "./dead_links";
import { EarlyConnection } from "./early_connection";
import { watchFirefoxDownloads } from "./firefox_downloads";
import { HostError, type HostRequest, type Transfer } from "./messages";
import { NativeHost } from "./native_host";
import { Notices } from "./notices";
import { RequestLog } from "./request_log";
import { watchSettings } from "./settings";
import { Takeover } from "./takeover";

const notices = new Notices();
const host = new NativeHost((event) => {
  if (event.event === "transfer") void notices.changed(event.transfer);
  if (event.event === "removed") notices.removed(event.id);
  if (event.event === "lost" || event.event === "connected") notices.connected(event.event === "connected");
  void api.runtime.sendMessage(event).catch(() => undefined); // No popup is open.
});
const log = new RequestLog();
const guard = new BurstGuard();
const deadLinks = new DeadLinks();
const takeover = new Takeover(host, log, guard, deadLinks, notices);

watchSettings();
log.listen();
new EarlyConnection(host).listen();
if (isFirefox) watchFirefoxDownloads(takeover);
else watchChromiumDownloads(takeover, log);

api.runtime.onInstalled.addListener(() => {
  api.contextMenus.create({
    id: "add",
    title: text("menuAdd"),
    contexts: ["link", "image", "video", "audio"],
    targetUrlPatterns: ["http://*/*", "https://*/*", "ftp://*/*"],
  });
});

api.contextMenus.onClicked.addListener((click, tab) => {
  const url = click.linkUrl ?? click.srcUrl;
  if (url) void cookieStoreOf(tab).then((store) => takeover.add(url, click.pageUrl ?? "", store));
});

/** Returns the cookie store of a tab: Firefox names it, Chromium lists the tabs of each. */
async function cookieStoreOf(tab: chrome.tabs.Tab | undefined): Promise<string | undefined> {
  const named = (tab as { cookieStoreId?: string } | undefined)?.cookieStoreId;
  if (named !== undefined) return named;
  const stores = await api.cookies.getAllCookieStores();
  return stores.find((store) => tab?.id !== undefined && store.tabIds.includes(tab.id))?.id;
}

api.notifications.onClicked.addListener((id) => void notificationClicked(id));

async function notificationClicked(id: string): Promise<void> {
  await api.notifications.clear(id);
  const separator = id.indexOf(":");
  const [kind, subject] = [id.slice(0, separator), id.slice(separator + 1)];
  if (kind === "burst") guard.answer(subject, true);
  if (kind === "link") await openDeadLink(Number(subject));
  if (kind === "done") await host.request({ type: "open-folder", transfer: Number(subject) });
}

async function openDeadLink(id: number): Promise<void> {
  const transfers = await host.request<Transfer[]>({ type: "list", limit: 100 });
  const transfer = transfers.find((transfer) => transfer.id === id);
  if (transfer) await deadLinks.open(transfer);
}

/** What the popup and the options page ask for: a request to the host, or the page of a dead link. */
export type PageRequest = HostRequest | { type: "open-dead-link"; transfer: number };

api.runtime.onMessage.addListener((message: PageRequest, _sender, reply) => {
  const answer = message.type === "open-dead-link" ? openDeadLink(message.transfer) : host.request(message);
  answer.then(
    (result) => reply({ ok: true, result: result ?? null }),
    (error: unknown) => {
      const code = error instanceof HostError ? error.code : "error";
      reply({ ok: false, error: { code, message: error instanceof Error ? error.message : String(error) } });
    },
  );
  return true;
});
