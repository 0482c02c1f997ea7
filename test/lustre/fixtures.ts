/** Recorded and sampled outputs of test/fixtures/lustre. */
import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Layout } from "../../src/lustre/layout.ts";

export const FIXTURES = fileURLToPath(new URL("../../../test/fixtures/lustre/", import.meta.url));
/** `lfs getstripe` of many shapes. */
export const CASE_60 = fileURLToPath(new URL("../../../test/fixtures/cases/60-lustre-getstripe/", import.meta.url));

export const recorded = (name: string): string => readFileSync(`${FIXTURES}recorded/${name}`, "utf8");
export const sampled = (name: string): string => readFileSync(`${FIXTURES}samples/${name}`, "utf8");

/** The value of `lustre.lov`, else of `trusted.lov`, in what `getfattr -e hex` printed; of the last file, if of several. */
export function hexOf(printed: string): Uint8Array {
  const values = [...printed.matchAll(/^(?:(lustre|trusted)\.lov=0x)?([0-9a-f]{64,})$/gm)];
  const hex = (values.findLast(([, name]) => name !== "trusted") ?? values.at(-1))?.[2];
  if (hex === undefined) throw new Error(`no layout in ${printed.slice(0, 80)}`);
  return new Uint8Array(Buffer.from(hex, "hex"));
}

/** Every fixture that holds the bytes of a layout. */
export function allHex(): { name: string; bytes: Uint8Array }[] {
  return ["recorded", "samples"].flatMap((part) =>
    readdirSync(FIXTURES + part)
      .filter((name) => /^(xattr|getfattr|as-nobody-getfattr|hsm)-.*\.(hex|txt)$/.test(name))
      .map((name) => ({ name, bytes: hexOf(readFileSync(`${FIXTURES}${part}/${name}`, "utf8")) })),
  );
}

/** What both sources tell: the xattr hides the first OST, the server of DoM, and the generation of a plain layout. */
export function comparable(layout: Layout): unknown {
  return {
    ...layout,
    generation: layout.composite ? layout.generation : undefined,
    components: layout.components.map((component) => ({ ...component, stripeOffset: undefined, mdt: undefined })),
  };
}

/** The recorded counters of the client, as one `lctl get_param` of all of them prints them. */
export const recordedCounters = (): string =>
  ["llite.stats", "osc.stats", "osc.rpc_stats", "mdc.stats"].map((name) => recorded(`get_param-${name}.txt`)).join("");

/**
 * Such a text later: more by `[count, sum]` of counters of one device (`osc.lustre-OST0001-osc-ffff888110d00000`), and more of its requests
 * in a row of `pages per rpc`.
 */
export function grown(text: string, device: string, more: Record<string, [count: number, sum?: number]>): string {
  let here = "";
  let pages = false;
  const lines = text.split("\n").map((line) => {
    if (/^\w+\.\S+=/.test(line)) here = line;
    if (/^[a-z]/i.test(line)) pages = line.startsWith("pages per rpc");
    if (!here.startsWith(`${device}.`)) return line;
    const row = pages ? /^(\d+):(\s+)(\d+)( .*)$/.exec(line) : null;
    const added = more[row === null ? (line.split(" ")[0] ?? "") : `${row[1]} pages`];
    if (added === undefined) return line;
    if (row !== null) return `${row[1]}:${row[2]}${Number(row[3]) + added[0]}${row[4]}`;
    const [, name, count, rest] = /^(\w+ +)(\d+)( samples .*)$/.exec(line)!;
    const summed = rest!.replace(/(\] \d+ \d+ )(\d+)/, (_, before: string, sum: string) => {
      return `${before}${Number(sum) + (added[1] ?? 0)}`;
    });
    return `${name}${Number(count) + added[0]}${summed}`;
  });
  return lines.join("\n");
}

export const CLIENT = "ffff888110d00000";
