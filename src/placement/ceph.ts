/**
 * Placement on CephFS: how large the objects of a file are. Which OSDs hold them is the business of the kernel's client, which tells it
 * to root alone, in debugfs: no target is named, and reads count for the mount as on other file systems.
 *
 * Contract: `Places` of storage/places.ts. One xattr of the first file that is expected is asked, once a data set, in the background.
 *
 * @example
 * parseCephLayout("stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs.data")?.objectSize; // 4194304
 */
import { askFiles } from "../lustre/ask.ts";
import type { AskOptions } from "../lustre/ask.ts";
import type { Home, Places } from "../storage/places.ts";

export interface CephLayout {
  /** Bytes that lie side by side in one object before the next object's turn. */
  stripeUnit: number;
  /** Objects that take turns. */
  stripeCount: number;
  /** Bytes. */
  objectSize: number;
  pool: string;
  namespace: string | undefined;
}

/** What is asked at least: two objects of the default size, as the kernel's own read-ahead. */
const LEAST = 8 * 2 ** 20;
/** Larger requests gain nothing and hold memory. */
const MOST = 16 * 2 ** 20;

/** Xattrs that tell: a file has one of its own, a folder only if one was set there. */
export const CEPH_XATTRS = ["ceph.file.layout", "ceph.dir.layout"] as const;

export class CephPlaces implements Places {
  private readonly options: AskOptions;

  constructor(options: AskOptions = {}) {
    this.options = options;
  }

  at(): Pick<Home, "requestBytes" | "expect"> {
    let bytes: number | undefined;
    let asked = false;
    return {
      get requestBytes() {
        return bytes;
      },
      expect: ([path]) => {
        if (path === undefined || asked) return;
        asked = true;
        void askCephLayout(path, this.options).then((text) => {
          const layout = text === undefined ? undefined : parseCephLayout(text);
          if (layout !== undefined) bytes = cephRequestBytes(layout);
        });
      },
    };
  }

  targetsOf(): undefined {
    return undefined;
  }

  close(): void {
    // nothing is kept
  }
}

/** The text of the layout; undefined: not told, or a folder without one of its own. */
export async function askCephLayout(path: string, options: AskOptions): Promise<string | undefined> {
  const answers = await askFiles(
    CEPH_XATTRS.map((xattr) => ({ path, xattr })),
    options,
  );
  const value = answers?.flatMap((answer) => ("value" in answer ? [answer.value] : []))[0];
  return value === undefined ? undefined : Buffer.from(value).toString("utf8");
}

/** Undefined: another text than is known. Pool names have no blanks. */
export function parseCephLayout(text: string): CephLayout | undefined {
  const fields = new Map(
    text
      .trim()
      .split(/\s+/)
      .map((part) => part.split("=", 2) as [string, string]),
  );
  const size = (name: string): number => Number(fields.get(name));
  const layout = {
    stripeUnit: size("stripe_unit"),
    stripeCount: size("stripe_count"),
    objectSize: size("object_size"),
    pool: fields.get("pool") ?? "",
    namespace: fields.get("pool_namespace"),
  };
  const { stripeUnit, stripeCount, objectSize } = layout;
  return [stripeUnit, stripeCount, objectSize].every((value) => Number.isSafeInteger(value) && value > 0)
    ? layout
    : undefined;
}

/** Whole objects, or whole rounds over the objects that take turns: as many as make 8 MiB, and 16 MiB at most. */
export function cephRequestBytes({ stripeUnit, stripeCount, objectSize }: CephLayout): number {
  const round = stripeCount === 1 ? objectSize : stripeUnit * stripeCount;
  return Math.min(MOST, Math.ceil(LEAST / round) * round);
}
