/**
 * The options of `lfs setstripe` and `lfs migrate` for a layout: what to type, and how to undo it.
 *
 * @example
 * setstripeOptions([{ count: 1, size: 4 << 20 }], "flash"); // ["-c", "1", "-S", "4M", "-p", "flash"]
 */
import { escaped } from "../base/visible.ts";
import { END_OF_FILE } from "./layout.ts";
import type { Component, Layout } from "./layout.ts";

/** A part of a layout that is wished for. */
export interface Wish {
  /** Exclusive end in bytes. @default the end of the file */
  end?: bigint;
  /** Stripes. */
  count: number;
  /** Bytes of a stripe. */
  size: number;
  /** On the metadata server. */
  mdt?: boolean;
}

export function setstripeOptions(wishes: readonly Wish[], pool: string | undefined): string[] {
  const composite = wishes.length > 1 || wishes.some(({ mdt }) => mdt === true);
  return wishes.flatMap(({ end, count, size, mdt }) => [
    ...(composite ? ["-E", end === undefined ? "-1" : sizeOption(end)] : []),
    ...(mdt === true ? ["-L", "mdt"] : ["-c", String(count), "-S", sizeOption(BigInt(size)), ...poolOption(pool)]),
  ]);
}

/**
 * Options that make this layout again; undefined: there are none (foreign, or nothing is set). `ost`: the part that has been written on one OST
 * goes to this one.
 */
export function optionsOf(layout: Layout, ost?: number): string[] | undefined {
  const { components, composite, mirrors, foreign } = layout;
  if (foreign !== undefined || components.length === 0) return undefined;
  const options: string[] = [];
  let mirror: number | undefined;
  for (const [i, component] of components.entries()) {
    // The reserve of a self-extending part belongs to the part before it.
    if (component.extensionSize !== undefined) continue;
    const reserve = components[i + 1]?.extensionSize === undefined ? undefined : components[i + 1];
    if (mirrors > 1 && component.mirror !== mirror) options.push("-N");
    mirror = component.mirror;
    const end = reserve?.end ?? component.end;
    if (composite) options.push("-E", end === END_OF_FILE ? "-1" : sizeOption(end));
    if (reserve !== undefined) options.push("-z", sizeOption(BigInt(reserve.extensionSize!)));
    options.push(...stripes(component, ost));
  }
  return options;
}

function stripes(component: Component, ost: number | undefined): string[] {
  const { pattern, stripeCount, stripeSize, stripeOffset, pool, osts } = component;
  if (pattern.includes("mdt")) return ["-L", "mdt"];
  const many = pattern.includes("overstriped") || stripeCount < -1;
  return [
    many ? "-C" : "-c",
    String(stripeCount),
    ...(stripeSize === 0 ? [] : ["-S", sizeOption(BigInt(stripeSize))]),
    // The first OST of a file is where it happened to begin; that of a default was set.
    ...(osts.length > 0 || pattern.includes("released") || stripeOffset === undefined || stripeOffset < 0
      ? []
      : ["-i", String(stripeOffset)]),
    ...(ost === undefined || osts.length !== 1 ? [] : ["-o", String(ost)]),
    ...poolOption(pool),
  ];
}

const poolOption = (pool: string | undefined): string[] => (pool === undefined ? [] : ["-p", pool]);

/** `4M`, `1G`, or plain bytes. */
export function sizeOption(bytes: bigint): string {
  for (const [unit, shift] of [
    ["T", 40n],
    ["G", 30n],
    ["M", 20n],
    ["K", 10n],
  ] as const)
    if (bytes >= 1n << shift && bytes % (1n << shift) === 0n) return `${bytes >> shift}${unit}`;
  return String(bytes);
}

/** A path as a shell takes it, on one line: control characters as bash reads them. */
export function quoted(path: string): string {
  if (/^[\w@%+=:,./-]+$/.test(path)) return path;
  if (!/\p{Cc}/u.test(path)) return `'${path.replaceAll("'", "'\\''")}'`;
  return `$'${path.replace(/[\\']/g, "\\$&").replace(/\p{Cc}/gu, escaped)}'`;
}
