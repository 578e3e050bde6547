// Numbers as people read them: bytes in IEC units, rates in SI bits a second, as everywhere in Longhaul.

import { locale, t } from "./i18n.js";

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const RATES = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
const formats = new Map();

function number(value, digits) {
  const key = `${locale()} ${digits}`;
  if (!formats.has(key)) {
    formats.set(key, new Intl.NumberFormat(locale(), { maximumFractionDigits: digits, minimumFractionDigits: digits }));
  }
  return formats.get(key).format(value);
}

/** Formats with three significant digits and the largest unit below the value. */
function scaled(value, base, units) {
  let power = 0;
  while (value >= base * 0.9995 && power < units.length - 1) {
    value /= base;
    power += 1;
  }
  const digits = power === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${number(value, digits)} ${units[power]}`;
}

export const count = (value) => number(value, 0);
export const bytes = (value) => (value === null || value === undefined ? "–" : scaled(value, 1024, BYTES));
export const rate = (bps) => (bps === null || bps === undefined ? "–" : scaled(Math.max(0, bps), 1000, RATES));
export const percent = (share) => `${number(share * 100, share < 0.1 || share >= 0.9995 ? 0 : 1)} %`;

/** The part of a transfer that is done; of a worker of a plan, what it has done of the plan's units. */
export function shareDone({ state, size, bytes: present, units }) {
  if (state === "done") return 1;
  if (units) return units.total > 0 ? units.done / units.total : 0;
  return size ? Math.min(1, present / size) : 0;
}

export function milliseconds(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const ms = seconds * 1000;
  if (ms === 0) return "0 ms";
  return `${number(ms, ms < 1 ? 3 : ms < 10 ? 2 : ms < 100 ? 1 : 0)} ms`;
}

/** Formats a time span: its two largest units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds);
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, size]) => whole >= size);
  if (first < 0) return t("time.s", { n: number(seconds, 1) });
  let rest = whole;
  return parts.slice(first, first + 2).map(([unit, size]) => {
    const n = Math.floor(rest / size);
    rest %= size;
    return n > 0 || unit === parts[first][0] ? t(`time.${unit}`, { n: count(n) }) : "";
  }).filter(Boolean).join(" ");
}

export function moment(unix) {
  if (unix === null || unix === undefined) return "–";
  return new Date(unix * 1000).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "short" });
}

/** Reads a rate such as `500 Mbit/s`, `1.5G`, or `20 MB/s`; null is no limit, undefined is no rate. */
export function parseRate(text) {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  const match = /^(\d+(?:[.,]\d+)?)\s*([kMGT]?)\s*(bit(?:\/s)?|bps|B(?:\/s)?)?$/i.exec(trimmed);
  if (!match) return undefined;
  const factor = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 }[match[2].toLowerCase()];
  const isBytes = /^B(\/s)?$/.test(match[3] ?? "");
  const bps = Math.round(Number(match[1].replace(",", ".")) * factor * (isBytes ? 8 : 1));
  return bps > 0 && Number.isSafeInteger(bps) ? bps : undefined;
}
