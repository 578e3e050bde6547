// Sizes, rates and times as text, in the units that Longhaul uses: IEC for sizes, bits a second for rates.

const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const RATE_UNITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];

export function size(bytes: number): string {
  return scaled(bytes, 1024, SIZE_UNITS);
}

export function rate(bitsPerSecond: number): string {
  return scaled(bitsPerSecond, 1000, RATE_UNITS);
}

function scaled(value: number, base: number, units: string[]): string {
  let [rest, unit] = [value, 0];
  while (rest >= base && unit < units.length - 1) {
    rest /= base;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

/** Seconds as `m:ss` or `h:mm:ss`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value: number) => String(value).padStart(2, "0");
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}
