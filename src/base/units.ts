/**
 * Units: sizes such as `64MiB` and durations such as `30s`, as a user types and reads them.
 *
 * Contract: `parse…` accept a plain number (bytes, seconds) or a number with a unit and throw ATH_USAGE for
 * anything else; `format…` are for eyes only and never parsed back by us.
 *
 * @example
 * parseSize("64MiB"); // 67108864
 * formatDuration(90); // "1.5min"
 */
import { Usage } from "./usage.ts";

const SIZE_UNITS: Record<string, number> = {
  "": 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  pb: 1e15,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
  t: 2 ** 40,
  p: 2 ** 50,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
  pib: 2 ** 50,
};

const DURATION_UNITS: Record<string, number> = {
  us: 1e-6,
  ms: 1e-3,
  "": 1,
  s: 1,
  min: 60,
  m: 60,
  h: 3600,
  d: 86400,
};

/** Bytes. `64MiB` and `64M` are 2^26, `64MB` is 64 million. `name`: what the value is for, in the error. */
export function parseSize(text: string, name = "size"): number {
  const bytes = parseWithUnit(text, SIZE_UNITS);
  if (bytes === undefined) throw new Usage(`${name} must be a size such as 64MiB or 2GB, got ${JSON.stringify(text)}`);
  return Math.round(bytes);
}

/** Seconds. */
export function parseDuration(text: string, name = "duration"): number {
  const seconds = parseWithUnit(text, DURATION_UNITS);
  if (seconds === undefined) {
    throw new Usage(`${name} must be a duration such as 200ms, 30s or 5min, got ${JSON.stringify(text)}`);
  }
  return seconds;
}

export function formatSize(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${threeDigits(value)}${units[unit]}`;
}

export function formatDuration(seconds: number): string {
  if (seconds === 0) return "0s";
  if (seconds < 1e-3) return `${threeDigits(seconds * 1e6)}us`;
  if (seconds < 1) return `${threeDigits(seconds * 1e3)}ms`;
  if (seconds < 90) return `${threeDigits(seconds)}s`;
  if (seconds < 5400) return `${threeDigits(seconds / 60)}min`;
  if (seconds < 129600) return `${threeDigits(seconds / 3600)}h`;
  return `${threeDigits(seconds / 86400)}d`;
}

/** `1234567` → `1 234 567`. */
export function formatCount(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

/** `1 shard`, `2 shards`, `3 batches`. `noun`: the singular of a regular English one. */
export function formatNumber(count: number, noun: string): string {
  const plural = /(s|x|ch|sh)$/.test(noun) ? `${noun}es` : `${noun}s`;
  return `${formatCount(count)} ${count === 1 ? noun : plural}`;
}

function parseWithUnit(text: string, units: Record<string, number>): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  if (match === null) return undefined;
  const unit = units[match[2]!.toLowerCase()];
  const value = unit === undefined ? Number.NaN : Number(match[1]) * unit;
  return Number.isFinite(value) ? value : undefined;
}

/** Three significant digits, no exponent, no trailing zeros. */
function threeDigits(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}
