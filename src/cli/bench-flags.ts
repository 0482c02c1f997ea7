/** What the commands of `athanor bench` have in common: values of flags, and progress on stderr. */
import { Usage } from "../base/usage.ts";
import type { Watch } from "../bench/train.ts";

export function count(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1)
    throw new Usage(`${name} must be a whole number of at least 1, got ${JSON.stringify(text)}`);
  return value;
}

export function amount(name: string, text: string): number {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (!Number.isFinite(value) || value < 0)
    throw new Usage(`${name} must be a number of at least 0, got ${JSON.stringify(text)}`);
  return value;
}

export function oneOf<const T extends string>(name: string, text: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === text);
  if (found === undefined) throw new Usage(`${name} must be one of ${choices.join(", ")}, got ${JSON.stringify(text)}`);
  return found;
}

/** `json`: silent, so that stderr has only what went wrong. */
export function watchOf(json: boolean): Watch {
  return { say: (line) => void (json || process.stderr.write(`bench: ${line}\n`)) };
}
