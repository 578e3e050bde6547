// Decides whether a download is worth taking over: pure, so that it is tested without a browser.

import { covers, type Settings } from "./settings";

export interface Download {
  url: string;
  method: string;
  /** Bytes; null where the server does not report it. */
  size: number | null;
  mediaType: string;
  /** The name that the browser would give the file. */
  name: string;
  privateWindow: boolean;
}

const MIB = 1024 * 1024;

/** Returns null where the download is to be taken over, or why the browser keeps it. */
export function whyNot(download: Download, settings: Settings): string | null {
  if (!settings.enabled) return "disabled";
  if (download.privateWindow && !settings.privateWindows) return "private window";
  if (!/^(https?|ftp):/i.test(download.url)) return "not a network address";
  if (download.method !== "GET") return `result of ${download.method}`;
  const rule = hostRule(new URL(download.url).hostname, settings);
  if (rule === "never") return "excluded host";
  if (isExcluded(download, settings.excludedTypes)) return "excluded type";
  if (rule === "always") return null;
  if (download.size === null) return "size unknown";
  return download.size < settings.minimumMiB * MIB ? "small" : null;
}

function hostRule(host: string, settings: Settings): "never" | "always" | null {
  return settings.hosts.find((rule) => covers(rule.host, host))?.action ?? null;
}

function isExcluded(download: Download, types: string[]): boolean {
  const media = download.mediaType.split(";")[0]?.trim().toLowerCase() ?? "";
  const name = download.name.toLowerCase();
  return types.some((type) => {
    const wanted = type.trim().toLowerCase();
    if (!wanted) return false;
    if (wanted.endsWith("/*")) return media.startsWith(wanted.slice(0, -1));
    return wanted.includes("/") ? media === wanted : name.endsWith(`.${wanted.replace(/^\./, "")}`);
  });
}

/** Media types that browsers show rather than save. */
const SHOWN = /^(text\/|image\/|audio\/|video\/|application\/(xhtml\+xml|xml|json|pdf|javascript))/i;

/** Returns whether a browser saves an answer with this head rather than shows it. */
export function isSaved(disposition: string, mediaType: string): boolean {
  return /^\s*attachment/i.test(disposition) || (mediaType !== "" && !SHOWN.test(mediaType));
}

/** Endings of names that lead to pages and to what browsers show. */
const SHOWN_NAME = /\.(html?|xhtml|php\d?|aspx?|jsp|cgi|do|js|css|json|xml|txt|md|pdf|svg|png|jpe?g|gif|webp|avif|ico|mp3|m4a|ogg|wav|mp4|webm|com|org|net)$/i;

/** Returns whether the answer to a request for `url` is likely to be saved, by the ending of its name: `.iso`, `.tar.gz`, `.nc`. */
export function looksSaved(url: string): boolean {
  const name = fileName("", url);
  return /\.(?=[a-z0-9]*[a-z])[a-z0-9]{2,8}$/i.test(name) && !SHOWN_NAME.test(name);
}

/** Returns the file name of a Content-Disposition field or of the URL's path, without any folder; "" where there is none. */
export function fileName(disposition: string, url: string): string {
  const extended = /filename\*\s*=\s*utf-8'[^']*'([^;\s]+)/i.exec(disposition)?.[1];
  const quoted = /filename\s*=\s*"((?:[^"\\]|\\.)*)"/i.exec(disposition)?.[1]?.replace(/\\(.)/g, "$1");
  const token = /filename\s*=\s*([^;"\s]+)/i.exec(disposition)?.[1];
  const named = (extended && decoded(extended)) ?? quoted ?? token ?? decoded(new URL(url).pathname);
  return withoutFolder(named);
}

/** Returns the last component of a path of any system, without leading dots: no page names a hidden file. */
export function withoutFolder(path: string): string {
  return (path.split(/[/\\]/).at(-1) ?? "").replace(/^\.+/, "");
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
