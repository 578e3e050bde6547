// Firefox: the head of an answer is held back until the agent has accepted, then the request is cancelled.
// No entry appears among the browser's downloads, and the page stays.

import { api } from "./browser_api";
import { fileName, isSaved } from "./rules";
import type { Takeover } from "./takeover";

type Head = chrome.webRequest.OnHeadersReceivedDetails & { incognito?: boolean; cookieStoreId?: string };

/** Starts to listen; must be called while the background script starts. */
export function watchFirefoxDownloads(takeover: Takeover): void {
  const listener = (details: Head) => held(details, takeover);
  api.webRequest.onHeadersReceived.addListener(
    listener as unknown as (details: chrome.webRequest.OnHeadersReceivedDetails) => undefined,
    { urls: ["http://*/*", "https://*/*"], types: ["main_frame", "sub_frame", "other"] },
    ["blocking", "responseHeaders"],
  );
}

async function held(details: Head, takeover: Takeover): Promise<chrome.webRequest.BlockingResponse> {
  const value = (name: string) =>
    details.responseHeaders?.find((header) => header.name.toLowerCase() === name)?.value ?? "";
  const [disposition, mediaType] = [value("content-disposition"), value("content-type")];
  // Requests of type `other` are `<a download>` and "save link as": saved whatever their type.
  const saved = details.type === "other" || isSaved(disposition, mediaType);
  if (details.statusCode !== 200 || !saved) return {};
  const length = Number.parseInt(value("content-length"), 10);
  const taken = await takeover.offer({
    url: details.url,
    requested: details.url,
    method: details.method,
    size: Number.isSafeInteger(length) && !value("content-encoding") ? length : null,
    mediaType,
    name: fileName(disposition, details.url),
    privateWindow: details.incognito ?? false,
    cookieStore: details.cookieStoreId,
  });
  return taken ? { cancel: true } : {};
}
