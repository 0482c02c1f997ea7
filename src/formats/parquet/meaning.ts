/**
 * Meaning: a stored value as what its logical type says it is, for eyes.
 *
 * @example
 * meant(leaf, { type: "decimal", scale: 2 }, values, 0); // "12.50"
 */
import type { Value } from "../../base/json.ts";
import type { Leaf, Meaning } from "./schema.ts";
import type { Dense } from "./values.ts";

const text = new TextDecoder();

export function meant(leaf: Leaf, meaning: Meaning, values: Dense, at: number): Value {
  if ("ends" in values) {
    const bytes = values.bytes.slice(at === 0 ? 0 : values.ends[at - 1], values.ends[at]);
    return meantBytes(meaning, bytes);
  }
  const value = values[at]!;
  if (values instanceof Float32Array || values instanceof Float64Array) return value;
  if (leaf.type === "BOOLEAN") return value === 1;
  if (meaning.type === "decimal") return decimal(BigInt(value), meaning.scale);
  if (meaning.type === "date") return day(Number(value));
  if (meaning.type === "time" || meaning.type === "timestamp") return instant(BigInt(value), meaning);
  return leaf.unsigned === 64 && value < 0 ? BigInt.asUintN(64, BigInt(value)) : value;
}

function meantBytes(meaning: Meaning, bytes: Uint8Array): Value {
  switch (meaning.type) {
    case "text":
    case "json":
      return text.decode(bytes);
    case "decimal":
      return decimal(signedInteger(bytes), meaning.scale);
    case "uuid":
      return Buffer.from(bytes)
        .toString("hex")
        .replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    case "float16":
      return bytes.length === 2 ? half(bytes[0]! | (bytes[1]! << 8)) : bytes;
    case "int96": {
      // Nanoseconds of the day, then the Julian day.
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
      const days = BigInt(view.getUint32(8, true)) - 2_440_588n;
      return instant(days * 86_400_000_000_000n + view.getBigInt64(0, true), {
        type: "timestamp",
        unit: "NANOS",
        utc: false,
      });
    }
    default:
      return bytes;
  }
}

/** Big-endian two's complement. */
function signedInteger(bytes: Uint8Array): bigint {
  if (bytes.length === 0) return 0n;
  return BigInt.asIntN(bytes.length * 8, BigInt(`0x${Buffer.from(bytes).toString("hex")}`));
}

function decimal(unscaled: bigint, scale: number): string {
  if (scale <= 0) return String(unscaled * 10n ** BigInt(Math.min(1000, -scale)));
  const digits = String(unscaled < 0n ? -unscaled : unscaled).padStart(Math.min(scale, 1000) + 1, "0");
  return `${unscaled < 0n ? "-" : ""}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

function half(bits: number): number {
  const sign = bits >> 15 === 1 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function day(days: number): string {
  const date = new Date(days * 86_400_000);
  return Number.isNaN(date.getTime()) ? `day ${days}` : date.toISOString().slice(0, 10);
}

const DIGITS = { MILLIS: 3, MICROS: 6, NANOS: 9 } as const;

/** ISO 8601 with all digits of the unit; Z where it is UTC. */
function instant(value: bigint, { type, unit, utc }: Extract<Meaning, { unit: string }>): string {
  const digits = DIGITS[unit] ?? 3;
  const second = 10n ** BigInt(digits);
  const fraction = ((value % second) + second) % second;
  const date = new Date(Number((value - fraction) / second) * 1000);
  if (Number.isNaN(date.getTime())) return `${value} ${unit}`;
  const whole = date.toISOString().slice(0, -5);
  const shown = `${whole}.${String(fraction).padStart(digits, "0")}`;
  return type === "time" ? shown.slice(shown.indexOf("T") + 1) : `${shown}${utc ? "Z" : ""}`;
}
