// The WebExtension API under one name, and which browser it is.

import type { Transfer } from "./messages";

/** Firefox has `browser`, whose functions return promises; Chromium's `chrome` does so in Manifest V3 too. */
export const api: typeof chrome = (globalThis as unknown as { browser?: typeof chrome }).browser ?? chrome;

/** Only Firefox lets an extension hold a response's head back until a promise is settled. */
export const isFirefox = api.runtime.getURL("").startsWith("moz-extension:");

/** Returns what has limited a transfer, in the user's language; as the agent says it where that is of a later version. */
export function limitOf(transfer: Pick<Transfer, "limited_by" | "explanation">): string {
  const known = transfer.limited_by && api.i18n.getMessage(`limit_${transfer.limited_by.replaceAll("-", "_")}`);
  return known || transfer.explanation || "";
}

/** Returns the text `key` in the user's language. */
export function text(key: string, ...values: string[]): string {
  return api.i18n.getMessage(key, values) || key;
}
