/**
 * The xattr `lustre.lov` (and `trusted.lov`): bytes → layout. Little-endian, whatever the machine; any user who may read the
 * file may read it. No library in JavaScript or Python reads it, so this is written by hand from Lustre's public header
 * (include/uapi/linux/lustre/lustre_user.h). The client hides the first OST and the generation of a plain layout (0xFFFF).
 *
 *     plain (V1; V3 and SPECIFIC have a pool)             composite
 *      0  u32 magic      24  u32 stripe size               0  u32 magic     12  u16 flags
 *      4  u32 pattern    28  u16 stripe count              4  u32 size      14  u16 entries
 *      8  id of the file 30  u16 0xFFFF                    8  u32 generation 16 u16 mirrors − 1
 *     [32  char pool[16]]                                 32  entries of 48:
 *     then objects of 24: 16 id, u32 gen, u32 OST          0  u32 id (mirror << 16 | number)   4  u32 flags
 *                                                          8  u64 start   16  u64 end (all ones: end of file)
 *     foreign: 4 u32 length, 8 u32 type, 12 u32 flags     24  u32 offset, 28 u32 size of its plain part
 *
 * Objects follow only where they exist: not in the default of a folder, in a component that was never written, behind DoM, nor
 * (they are zeros) in a released file.
 */
import { LayoutInvalid } from "./errors.ts";
import { emptyComponent } from "./layout.ts";
import type { Component, Layout } from "./layout.ts";

const V1 = 0x0bd10bd0;
const V3 = 0x0bd30bd0;
const SPECIFIC = 0x0bd50bd0;
const COMPOSITE = 0x0bd60bd0;
const FOREIGN = 0x0bd70bd0;
const SELF_EXTENDING = 0x0bd80bd0;

const PATTERNS: readonly (readonly [number, string])[] = [
  [0x1, "raid0"],
  [0x2, "raid1"],
  [0x4, "parity"],
  [0x100, "mdt"],
  [0x200, "overstriped"],
  [0x400, "foreign"],
  [0x800, "compress"],
  [0x4000_0000, "hole"],
  [0x8000_0000, "released"],
];

const FLAGS: readonly (readonly [number, string])[] = [
  [0x1, "stale"],
  [0x2, "prefrd"],
  [0x4, "prefwr"],
  [0x8, "offline"],
  [0x10, "init"],
  [0x20, "nosync"],
  [0x40, "extension"],
  [0x80, "parity"],
  [0x100, "compress"],
  [0x200, "partial"],
  [0x400, "nocompr"],
];

/** In the order of the bits; what `getstripe.ts` reads is put into the same order. */
export const PATTERN_NAMES: readonly string[] = PATTERNS.map(([, name]) => name);
export const FLAG_NAMES: readonly string[] = FLAGS.map(([, name]) => name);

const PLAIN_HEADER = 32;
const POOL = 16;
const OBJECT = 24;
const COMPOSITE_HEADER = 32;
const ENTRY = 48;

/** Counts from here on are negative: over all OSTs, so many on each. */
const NEGATIVE_COUNTS = 0xffe0;

/** Throws ATH_LAYOUT_INVALID with `file` and the byte of the xattr. */
export function decodeLov(bytes: Uint8Array, file: string): Layout {
  const blob: Blob = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), base: 0, file };
  need(blob, 4, "its kind");
  const magic = blob.view.getUint32(0, true);
  if (magic === COMPOSITE || magic === SELF_EXTENDING) return composite(blob);
  if (magic === FOREIGN) return { ...PLAIN, components: [], foreign: foreign(blob) };
  const part = plain(blob, "as the bytes say");
  return { ...PLAIN, components: [{ ...emptyComponent(), ...part }] };
}

const PLAIN = { composite: false, generation: undefined, mirrors: 1, foreign: undefined } as const;

interface Blob {
  view: DataView;
  /** Of the view in the xattr. */
  base: number;
  file: string;
}

type Part = Pick<Component, "pattern" | "stripeCount" | "stripeSize" | "pool" | "osts">;

function composite(blob: Blob): Layout {
  const { view, file } = blob;
  need(blob, COMPOSITE_HEADER, "the header of its components");
  const size = view.getUint32(4, true);
  if (size > view.byteLength)
    throw invalid(blob, 4, `says that it is ${size} bytes long, found ${view.byteLength} bytes`);
  const entries = view.getUint16(14, true);
  need(blob, COMPOSITE_HEADER + entries * ENTRY, `${entries} components`);
  const components: Component[] = [];
  // No component lies in another one, as servers write them: so what is made of the bytes is never larger than they allow.
  let room = view.byteLength - COMPOSITE_HEADER - entries * ENTRY;
  let other: Layout["foreign"];
  for (let i = 0; i < entries; i++) {
    const at = COMPOSITE_HEADER + i * ENTRY;
    const id = view.getUint32(at, true);
    const flags = names(view.getUint32(at + 4, true), FLAGS);
    const [start, end] = [view.getBigUint64(at + 8, true), view.getBigUint64(at + 16, true)];
    if (start > end) throw invalid(blob, at + 8, `component ${i} begins at ${start}, behind its end ${end}`);
    const [offset, length] = [view.getUint32(at + 24, true), view.getUint32(at + 28, true)];
    if (offset + length > view.byteLength) {
      const found = `bytes ${offset} to ${offset + length} of ${view.byteLength}`;
      throw invalid(blob, at + 24, `component ${i} lies outside of it: ${found}`);
    }
    room -= length;
    if (room < 0 || offset < COMPOSITE_HEADER + entries * ENTRY)
      throw invalid(blob, at + 24, `component ${i} lies over another one: bytes ${offset} to ${offset + length}`);
    const inner: Blob = { view: new DataView(view.buffer, view.byteOffset + offset, length), base: offset, file };
    need(inner, 4, `component ${i}`);
    const empty = { ...emptyComponent(), id: id === 0 ? undefined : id, mirror: id >>> 16, start, end, flags };
    if (inner.view.getUint32(0, true) === FOREIGN) {
      other ??= foreign(inner);
      components.push({ ...empty, pattern: ["foreign"] });
      continue;
    }
    const part = plain(inner, flags.includes("init") ? "written" : "not written");
    if (!flags.includes("extension")) components.push({ ...empty, ...part });
    // KiB in this field only, so that a large step fits.
    else components.push({ ...empty, ...part, osts: [], stripeSize: 0, extensionSize: part.stripeSize * 1024 });
  }
  const generation = view.getUint32(8, true);
  return { composite: true, generation, mirrors: view.getUint16(16, true) + 1, components, foreign: other };
}

/** `state`: whether objects must follow. In a layout without components only the length of the bytes tells. */
function plain(blob: Blob, state: "written" | "not written" | "as the bytes say"): Part {
  const { view } = blob;
  const magic = view.getUint32(0, true);
  if (magic !== V1 && magic !== V3 && magic !== SPECIFIC)
    throw invalid(blob, 0, `begins with 0x${magic.toString(16).padStart(8, "0")}, which is no known kind of layout`);
  const header = magic === V1 ? PLAIN_HEADER : PLAIN_HEADER + POOL;
  need(blob, header, "its header");
  const pattern = names(view.getUint32(4, true), PATTERNS);
  const stripeSize = view.getUint32(24, true);
  const stored = view.getUint16(28, true);
  const stripeCount = stored >= NEGATIVE_COUNTS ? stored - 0x1_0000 : stored;
  const pool = magic === V1 ? undefined : poolName(view);
  const without = { pattern, stripeCount, stripeSize, pool, osts: [] };
  const absent = state === "not written" || (state === "as the bytes say" && view.byteLength === header);
  if (absent || pattern.includes("mdt") || pattern.includes("released") || stripeCount < 0) return without;
  need(blob, header + stripeCount * OBJECT, `${stripeCount} stripes`);
  if (stripeSize === 0 && stripeCount > 0) throw invalid(blob, 24, "has stripes of 0 bytes");
  const osts = Array.from({ length: stripeCount }, (_, i) => view.getUint32(header + i * OBJECT + 20, true));
  return { ...without, osts };
}

function poolName(view: DataView): string | undefined {
  const bytes = new Uint8Array(view.buffer, view.byteOffset + PLAIN_HEADER, POOL);
  const end = bytes.indexOf(0);
  const name = Buffer.from(bytes.subarray(0, end < 0 ? POOL : end)).toString("latin1");
  return name === "" ? undefined : name;
}

function foreign(blob: Blob): { type: number; flags: number; length: number } {
  need(blob, 16, "its foreign header");
  const { view } = blob;
  return { length: view.getUint32(4, true), type: view.getUint32(8, true), flags: view.getUint32(12, true) };
}

function names(bits: number, table: readonly (readonly [number, string])[]): string[] {
  const known = table.filter(([bit]) => (bits & bit) !== 0);
  const rest = known.reduce((left, [bit]) => left & ~bit, bits) >>> 0;
  const found = known.map(([, name]) => name);
  return rest === 0 ? found : [...found, `0x${rest.toString(16)}`];
}

function need({ view, base, file }: Blob, bytes: number, what: string): void {
  if (view.byteLength >= bytes) return;
  throw new LayoutInvalid(
    `the layout ends early: ${what} needs ${bytes} bytes, found ${view.byteLength}`,
    { file, byteOffset: base + view.byteLength },
    REMEDY,
  );
}

function invalid({ base, file }: Blob, at: number, what: string): Error {
  return new LayoutInvalid(`the layout ${what}`, { file, byteOffset: base + at }, REMEDY);
}

const REMEDY = "compare with `lfs getstripe`; reading the file goes on without its layout";
