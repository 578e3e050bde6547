// What the user has chosen, in the browser's local storage.

import { api } from "./browser_api";

export interface Settings {
  /** Whether downloads are taken over at all. */
  enabled: boolean;
  /** The least size of a download that is taken over, MiB. */
  minimumMiB: number;
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

/** Parses lines `HOST never|always`; returns the first line that is neither as `bad`. */
export function parseHostRules(lines: string): { rules: HostRule[]; bad: string | null } {
  const rules: HostRule[] = [];
  for (const line of lines.split("\n").map((line) => line.trim()).filter(Boolean)) {
    const [host, action, ...rest] = line.split(/\s+/);
    if (!host || rest.length > 0 || (action !== "never" && action !== "always")) return { rules, bad: line };
    rules.push({ host: host.toLowerCase(), action });
  }
  return { rules, bad: null };
}
