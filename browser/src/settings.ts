// What the user has chosen, in the browser's local storage.

import { api } from "./browser_api";

export interface Settings {
  /** Whether downloads are taken over at all. */
  enabled: boolean;
  /** The least size of a download that is taken over, MiB. */
  minimumMiB: number;
  /** How long a download is held until its server has answered the agent, seconds; then the browser keeps it. */
  answerSeconds: number;
  /** Hosts with their own rule; `*.example.org` covers subdomains. */
  hosts: HostRule[];
  /** Extensions of names or media types that are never taken over: `pdf`, `image/*`. */
  excludedTypes: string[];
  /** Whether downloads of private windows are taken over. */
  privateWindows: boolean;
  /** Whether the end of a transfer is notified. */
  notify: boolean;
}

export interface HostRule {
  host: string;
  action: "never" | "always";
}

export const DEFAULTS: Settings = {
  enabled: true,
  minimumMiB: 64,
  answerSeconds: 3,
  hosts: [],
  excludedTypes: [],
  privateWindows: false,
  notify: true,
};

/** The settings once they are read, which takes tens of milliseconds the first time. */
let known: Promise<Settings> | undefined;

export function loadSettings(): Promise<Settings> {
  if (known !== undefined) return known;
  const reading = read();
  // A read that fails is repeated by the next call.
  reading.catch(() => {
    if (known === reading) known = undefined;
  });
  known = reading;
  return reading;
}

async function read(): Promise<Settings> {
  const stored = await api.storage.local.get("settings");
  return { ...DEFAULTS, ...(stored["settings"] as Partial<Settings> | undefined) };
}

/** Has settings that another page saves take effect; must be called while the background script starts. */
export function watchSettings(): void {
  api.storage.local.onChanged.addListener((changes) => {
    if ("settings" in changes) known = undefined;
  });
  loadSettings().catch(() => undefined);
}

export async function saveSettings(settings: Settings): Promise<void> {
  await api.storage.local.set({ settings });
}

/** The first line of a text that is no rule, and why: by its form, its host, or an earlier rule that covers it. */
export interface BadRule {
  line: string;
  why: "form" | "host" | "covered";
}

/** Parses lines `HOST never|always`; the first rule that covers a host applies. */
export function parseHostRules(lines: string): { rules: HostRule[]; bad: BadRule | null } {
  const rules: HostRule[] = [];
  for (const line of lines.split("\n").map((line) => line.trim()).filter(Boolean)) {
    const [pattern, action, ...rest] = line.split(/\s+/);
    if (!pattern || rest.length > 0 || (action !== "never" && action !== "always")) return { rules, bad: { line, why: "form" } };
    const host = hostPattern(pattern);
    if (host === null) return { rules, bad: { line, why: "host" } };
    if (rules.some((rule) => covers(rule.host, host))) return { rules, bad: { line, why: "covered" } };
    rules.push({ host, action });
  }
  return { rules, bad: null };
}

/** Returns a host, or `*.` and a domain, as URLs name it; null where no URL's host can be like it: one with a scheme, port or path. */
function hostPattern(pattern: string): string | null {
  const wildcard = pattern.startsWith("*.") ? "*." : "";
  const host = pattern.slice(wildcard.length).replace(/\.$/, "");
  if (!/^([^\s/?#@\\*%:[\]]+|\[[0-9a-f:.]+\])$/i.test(host) || !URL.canParse(`http://${host}/`)) return null;
  return wildcard + new URL(`http://${host}/`).hostname;
}

/** Returns whether a rule for `pattern` applies to a host, or to all hosts of another pattern. */
export function covers(pattern: string, host: string): boolean {
  if (!pattern.startsWith("*.")) return host === pattern;
  return host === pattern || host === pattern.slice(2) || host.endsWith(pattern.slice(1));
}

/** Parses extensions and media types with commas between; returns the first that no file can have as `bad`. */
export function parseTypes(list: string): { types: string[]; bad: string | null } {
  const types = list.split(",").map((type) => type.trim()).filter(Boolean);
  const isType = (type: string) => /^(\.?[^\s/*.;][^\s/*;]*|[\w.+-]+\/([\w.+-]+|\*))$/.test(type);
  return { types, bad: types.find((type) => !isType(type)) ?? null };
}
