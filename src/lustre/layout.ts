/**
 * Layout: on which OSTs the bytes of a file lie. Pure: made by `lov.ts` from the xattr `lustre.lov` and by `getstripe.ts`
 * from what `lfs getstripe` prints.
 *
 * A file is covered by components, each a range of the file striped by itself; a file without components is one that reaches
 * to the end. Mirrors are sets of components that cover the file again.
 *
 *        0                1 GiB                 16 GiB            end of file
 *        ├─ component 1 ──┼── component 2 ──────┼── component 3 ──┤   (3: not written yet, no OSTs)
 *          OST 2            OST 7 0 5 3 7 0 …
 *
 * Stripe k of a component lies on `osts[k mod stripeCount]`, where k counts from the beginning of the *file*.
 *
 * @example
 * const layout = decodeLov(bytes, "/mnt/lustre/d/a.tar");
 * ostAt(layout, 5n << 20n); // 7
 */

/** End of a component that reaches to the end of the file. */
export const END_OF_FILE = 2n ** 64n - 1n;

export interface Component {
  /** Undefined in the default of a folder, and in a layout that is not made of components. */
  id: number | undefined;
  /** 0 where nothing is mirrored. */
  mirror: number;
  /** Bytes from the beginning of the file. */
  start: bigint;
  /** Exclusive; equal to `start` in a part that a self-extending layout has used up. */
  end: bigint;
  /** `init` (has objects), `stale`, `prefrd`, `prefwr`, `offline`, `nosync`, `extension`, …; an unknown bit as `0x1000`. */
  flags: readonly string[];
  /** `raid0`, `mdt` (the bytes lie on the metadata server), `overstriped`, `released`, …; empty: the default of a folder names none. */
  pattern: readonly string[];
  /** −1: over all OSTs; −2 … −32: as many on each OST, in the default of a folder. */
  stripeCount: number;
  /** Bytes. 0 in the part that a self-extending layout has in reserve. */
  stripeSize: number;
  /** Bytes by which a self-extending layout grows; only where the flag `extension` is set. */
  extensionSize: number | undefined;
  pool: string | undefined;
  /** Of stripe 0, 1, …; empty where nothing has been written, and in the default of a folder. An OST may come twice. */
  osts: readonly number[];
  /** What `lfs getstripe` prints; the xattr does not tell it. −1: any OST. */
  stripeOffset: number | undefined;
  /** As `stripeOffset`. */
  mdt: number | undefined;
}

/** Nothing told yet: the whole file, no stripes. A new one each time, since what reads text fills it bit by bit. */
export function emptyComponent(): Component & { osts: number[] } {
  return {
    id: undefined,
    mirror: 0,
    start: 0n,
    end: END_OF_FILE,
    flags: [],
    pattern: [],
    stripeCount: 0,
    stripeSize: 0,
    extensionSize: undefined,
    pool: undefined,
    osts: [],
    stripeOffset: undefined,
    mdt: undefined,
  };
}

export interface Layout {
  composite: boolean;
  /** Grows with each change. The xattr of a layout without components does not tell it. */
  generation: number | undefined;
  mirrors: number;
  components: readonly Component[];
  /** Not Lustre's own: what it means is known to whoever made it. */
  foreign: { type: number; flags: number; length: number } | undefined;
}

export const isReleased = (layout: Layout): boolean =>
  layout.components.some(({ pattern }) => pattern.includes("released"));
export const hasDom = (layout: Layout): boolean => layout.components.some(({ pattern }) => pattern.includes("mdt"));

/** Numbers of the mirrors that are behind: what was written went to another one. */
export function staleMirrors(layout: Layout): number[] {
  return [...new Set(layout.components.filter(({ flags }) => flags.includes("stale")).map(({ mirror }) => mirror))];
}

/**
 * The components of the mirror that is read: one that is not stale, a preferred one first, then the lowest number. The client
 * may choose another one of those.
 */
export function readComponents(layout: Layout): readonly Component[] {
  if (layout.mirrors < 2) return layout.components;
  const stale = new Set(staleMirrors(layout));
  const mirrors = [...new Set(layout.components.map(({ mirror }) => mirror))].filter((mirror) => !stale.has(mirror));
  const preferred = layout.components.find(
    ({ mirror, flags }) => mirrors.includes(mirror) && flags.includes("prefrd"),
  )?.mirror;
  const chosen = preferred ?? Math.min(...mirrors);
  return layout.components.filter(({ mirror }) => mirror === chosen);
}

/** The OST of one byte, `"mdt"`, or undefined: no object there (never written, released, foreign). */
export function ostAt(layout: Layout, offset: bigint): number | "mdt" | undefined {
  const component = readComponents(layout).find(({ start, end }) => start <= offset && offset < end);
  if (component === undefined || component.pattern.includes("released")) return undefined;
  if (component.pattern.includes("mdt")) return "mdt";
  const { osts, stripeSize } = component;
  return osts.length === 0 ? undefined : osts[Number((offset / BigInt(stripeSize)) % BigInt(osts.length))];
}

/** Where the bytes of a range lie. */
export interface Spread {
  /** Bytes by OST, in order of the OST's number. */
  osts: ReadonlyMap<number, bigint>;
  /** Bytes on metadata servers. */
  mdt: bigint;
  /** Bytes without an object. */
  none: bigint;
}

/** The OSTs of [offset, offset + length), in a time that does not depend on the length. */
export function spreadOf(layout: Layout, offset: bigint, length: bigint): Spread {
  const bytes = new Map<number, bigint>();
  let mdt = 0n;
  let none = length;
  for (const { start, end, osts, stripeSize, pattern } of readComponents(layout)) {
    const from = start > offset ? start : offset;
    const to = end < offset + length ? end : offset + length;
    if (from >= to || pattern.includes("released")) continue;
    const onServer = pattern.includes("mdt");
    if (onServer) mdt += to - from;
    else if (osts.length === 0) continue;
    none -= to - from;
    if (onServer) continue;
    for (const [stripe, ost] of osts.entries()) {
      const size = BigInt(stripeSize);
      const count = BigInt(osts.length);
      const here = bytesBelow(to, stripe, size, count) - bytesBelow(from, stripe, size, count);
      if (here > 0n) bytes.set(ost, (bytes.get(ost) ?? 0n) + here);
    }
  }
  return { osts: new Map([...bytes].sort(([a], [b]) => a - b)), mdt, none };
}

/** Bytes of the file below `offset` that belong to stripe object `stripe`. */
function bytesBelow(offset: bigint, stripe: number, size: bigint, count: bigint): bigint {
  const round = size * count;
  const rest = (offset % round) - BigInt(stripe) * size;
  return (offset / round) * size + (rest < 0n ? 0n : rest > size ? size : rest);
}
