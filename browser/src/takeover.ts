// Offers a download to the agent: the part that both browsers share.

import { api } from "./browser_api";
import type { BurstGuard } from "./burst_guard";
import { HostError, type Transfer, type TransferRequest } from "./messages";
import type { NativeHost } from "./native_host";
import type { Notices } from "./notices";
import type { DeadLinks } from "./dead_links";
import type { LoggedRequest, RequestLog } from "./request_log";
import { whyNot, type Download } from "./rules";
import { loadSettings } from "./settings";

export interface Offer extends Download {
  /** The URL that the browser asked for first, which carries the headers. */
  requested: string;
  /** The cookie store of the tab: Firefox has one a container. */
  cookieStore: string | undefined;
}

export class Takeover {
  constructor(
    private readonly host: NativeHost,
    private readonly log: RequestLog,
    private readonly guard: BurstGuard,
    private readonly deadLinks: DeadLinks,
    private readonly notices: Notices,
  ) {}

  /** Returns whether the agent has the download; the browser keeps it otherwise, with nothing lost. */
  async offer(offer: Offer): Promise<boolean> {
    const settings = await loadSettings();
    const reason = whyNot(offer, settings);
    if (reason !== null && reason !== "small" && reason !== "size unknown") return false;
    const logged = this.log.find(offer.url, offer.cookieStore) ?? this.log.find(offer.requested, offer.cookieStore);
    if (logged && logged.method !== "GET") return false;
    const request = await this.request(offer, logged);
    const dead = await this.deadLinks.match({ ...offer, page: logged?.page ?? "" });
    if (dead !== null) return this.refresh(dead, request);
    if (reason !== null || !this.admitted(logged?.page || offer.url)) return false;
    try {
      const transfer = await this.host.request<Transfer>({ type: "offer", request, seconds: settings.answerSeconds });
      await this.deadLinks.remember(transfer, offer.cookieStore);
      return true;
    } catch (error) {
      await this.refused(error, offer);
      return false;
    }
  }

  /** Adds a link whose answer the browser has not seen. */
  async add(url: string, page: string, cookieStore: string | undefined): Promise<void> {
    const offer: Offer = {
      url, requested: url, method: "GET", size: null, mediaType: "", name: "", privateWindow: false, cookieStore,
    };
    try {
      const request = await this.request(offer, null);
      if (page) Object.assign(request, { referrer: page, page_url: page });
      const { transfers } = await this.host.request<{ transfers: Transfer[] }>({ type: "add", request });
      if (transfers[0]) await this.deadLinks.remember(transfers[0], cookieStore);
    } catch (error) {
      await this.notices.failed(error);
    }
  }

  private async refresh(transfer: number, request: TransferRequest): Promise<boolean> {
    try {
      await this.host.request<Transfer>({ type: "refresh", transfer, request });
      await this.deadLinks.forget();
      return true;
    } catch (error) {
      await this.notices.failed(error);
      return false;
    }
  }

  private admitted(page: string): boolean {
    const origin = URL.canParse(page) ? new URL(page).origin : page;
    const admission = this.guard.admit(origin, Date.now());
    if (admission === "ask") void this.notices.askAboutBurst(origin);
    return admission === "take";
  }

  private async refused(error: unknown, offer: Offer): Promise<void> {
    // A server that answers the second request otherwise, or too late, is no fault: the browser has the first answer.
    if (error instanceof HostError && error.code === "refused") return;
    await this.notices.failed(error, offer.name);
  }

  private async request(offer: Offer, logged: LoggedRequest | null): Promise<TransferRequest> {
    const cookies = logged ? logged.cookies : await cookiesOf(offer.url, offer.cookieStore);
    const request: TransferRequest = { urls: [offer.url], user_agent: logged?.userAgent || navigator.userAgent };
    if (offer.name) request.name = offer.name;
    if (offer.size !== null) request.size = offer.size;
    if (cookies) request.cookies = cookies;
    if (logged?.referrer) request.referrer = logged.referrer;
    if (logged?.authorization) request.headers = [`Authorization: ${logged.authorization}`];
    if (logged?.page) request.page_url = logged.page;
    return request;
  }
}

/** Returns the cookies for `url`; none without a store, for they could be another identity's. */
async function cookiesOf(url: string, storeId: string | undefined): Promise<string> {
  if (!/^https?:/i.test(url) || storeId === undefined) return "";
  const cookies = await api.cookies.getAll({ url, storeId });
  return cookies.map((cookie) => `${cookie.name}=${cookie.value}`).join("; ");
}
