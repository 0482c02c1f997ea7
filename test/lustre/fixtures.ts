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
