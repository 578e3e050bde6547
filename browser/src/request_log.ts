// Remembers with which headers the browser asked for a URL, so that the agent asks as the browser did.

import { api, isFirefox } from "./browser_api";

/** Requests that are remembered, and for how long, milliseconds. */
const MAX_REQUESTS = 500;
const MAX_AGE = 120_000;

export interface LoggedRequest {
  method: string;
  cookies: string;
  userAgent: string;
  referrer: string;
  authorization: string;
  /** The answer's Content-Disposition. */
  disposition: string;
  /** The page that asked. */
  page: string;
  tab: number;
  /** Firefox's cookie store of the request; undefined in Chromium. */
  cookieStore: string | undefined;
  at: number;
}

export class RequestLog {
  private readonly requests = new Map<string, LoggedRequest>();

  /** Starts to listen; must be called while the background script starts. */
  listen(): void {
    const extra: string[] = isFirefox ? ["requestHeaders"] : ["requestHeaders", "extraHeaders"];
    api.webRequest.onSendHeaders.addListener(
      (details) => this.record(details),
      { urls: ["<all_urls>"], types: ["main_frame", "sub_frame", "other"] },
      extra as `${chrome.webRequest.OnSendHeadersOptions}`[],
    );
    api.webRequest.onHeadersReceived.addListener(
      (details): undefined => {
        const request = this.requests.get(details.url);
        const header = details.responseHeaders?.find((one) => one.name.toLowerCase() === "content-disposition");
        if (request) request.disposition = header?.value ?? "";
      },
      { urls: ["<all_urls>"], types: ["main_frame", "sub_frame", "other"] },
      ["responseHeaders"],
    );
  }

  /** Returns the latest request for `url`, where it is still remembered and `store` is not another identity's. */
  find(url: string, store?: string): LoggedRequest | null {
    const request = this.requests.get(url);
    const isOfStore = !store || !request?.cookieStore || request.cookieStore === store;
    return request && isOfStore && Date.now() - request.at < MAX_AGE ? request : null;
  }

  private record(details: chrome.webRequest.OnSendHeadersDetails): void {
    const value = (name: string) =>
      details.requestHeaders?.find((header) => header.name.toLowerCase() === name)?.value ?? "";
    const origin = details as { initiator?: string; documentUrl?: string; originUrl?: string; cookieStoreId?: string };
    this.requests.delete(details.url);
    this.requests.set(details.url, {
      method: details.method,
      cookies: value("cookie"),
      userAgent: value("user-agent"),
      referrer: value("referer"),
      authorization: value("authorization"),
      disposition: "",
      page: value("referer") || origin.documentUrl || origin.originUrl || origin.initiator || "",
      tab: details.tabId,
      cookieStore: origin.cookieStoreId,
      at: Date.now(),
    });
    const oldest = this.requests.keys().next();
    if (this.requests.size > MAX_REQUESTS && !oldest.done) this.requests.delete(oldest.value);
  }
}
