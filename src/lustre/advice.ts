/**
 * Advice: what the layout of a folder should be for how it is used, whether it is, and the line that changes it with its undo. Pure.
 *
 * Four uses, after what sites and vendors publish (docs/guides/layout.md names each source); values are where to begin, a
 * measurement decides:
 *
 * | use | layout |
 * |---|---|
 * | `shards`: large files, each read once an epoch by one node | many files on 1 OST each; 4 where files are few or above 8 GiB |
 * | `small-files`: below 1 MiB | 1 OST; on the metadata server where the site has set that up already |
 * | `checkpoints`: large writes, a file a rank | growing with the file: 1, 4, 8 OSTs |
 * | `shared`: one file read by many nodes at once | 8 OSTs |
 *
 * Never over all OSTs (`-c -1`), never DoM where no folder above has it, and the OST pool of the folder is kept.
 */
import { formatNumber } from "../base/units.ts";
import type { Layout } from "./layout.ts";
import { hasDom, readComponents, spreadOf } from "./layout.ts";
import { optionsOf, quoted, setstripeOptions } from "./setstripe.ts";
import type { Wish } from "./setstripe.ts";

export type Use = "shards" | "small-files" | "checkpoints" | "shared";
export const USES: readonly Use[] = ["shards", "small-files", "checkpoints", "shared"];

export interface FileFacts {
  path: string;
  /** Bytes. */
  size: number;
  layout: Layout;
}

export interface AdviceInput {
  /** Absolute path of the folder. */
  folder: string;
  use: Use;
  files: readonly FileFacts[];
  /** All files of the folder; `files` may be a choice of them. */
  count: number;
  /** OSTs that new files of the folder can lie on. */
  osts: number;
  /** The default of the folder, of the one above, and of the whole file system. */
  current: Layout | undefined;
  above: Layout | undefined;
  mount: Layout | undefined;
  /** A link that is slow for each OST (`slow-links.ts`): a file then wants more of them. */
  slowLinks: boolean;
}

export interface Change {
  /** Behind `lfs setstripe`, the folder not among them. */
  options: readonly string[];
  /** Undefined: what is set now is not known. */
  undoOptions: readonly string[] | undefined;
  /** The same as lines to type. */
  command: string;
  undo: string | undefined;
  overrides: string | undefined;
}

export interface Advice {
  use: Use;
  /** The default of the folder is what it should be. */
  fits: boolean;
  /** What it should be and why, a sentence each. */
  why: string[];
  source: string;
  /** Undefined when it fits. Takes effect for new files only. */
  change: Change | undefined;
  /** Files whose own layout does not fit, and why. */
  misfits: { path: string; why: string }[];
}

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const STRIPE = 4 * MIB;
/** So many times the OSTs that are wished for are left alone: sites differ, and each costs a lock an open, no more. */
const WIDE: Record<Use, number> = { shards: 4, "small-files": 2, checkpoints: 4, shared: Infinity };
/** From here on the guides spread a file: the last ones of an epoch would wait for one OST. */
const LARGE = 8 * GIB;

/** What the files look like. `folder`: its name tells of checkpoints. */
export function useOf(folder: string, files: readonly { path: string; size: number }[]): Use {
  const share = (pattern: RegExp): number =>
    files.filter(({ path }) => pattern.test(path)).length / Math.max(1, files.length);
  if (/(^|[/_.-])(ckpts?|checkpoints?|global_step\d+)([/_.-]|\d|$)/i.test(folder)) return "checkpoints";
  if (share(/\.(distcp|ckpt|pt|pth)$|(^|\/)(global_step\d+|checkpoint-\d+)\//) > 0.5) return "checkpoints";
  const sizes = files.map(({ size }) => size).sort((a, b) => a - b);
  const median = sizes[Math.floor(sizes.length / 2)] ?? 0;
  return sizes.length >= 100 && median < MIB ? "small-files" : "shards";
}

export function advise(input: AdviceInput): Advice {
  const { use, current, above } = input;
  const { wishes, why, source } = wishFor(input);
  const fits = current !== undefined && fitsWish(current, wishes, input);
  const pool = poolOf(current) ?? poolOf(above);
  if (pool !== undefined) why.push(`the OST pool ${pool} of the folder is kept`);
  const change = fits ? undefined : changeOf(input, setstripeOptions(wishes, pool));
  return { use, fits, why, source, change, misfits: misfitsOf(input, wishes) };
}

function wishFor({ use, files, count, osts, current, above, mount, slowLinks }: AdviceInput): {
  wishes: Wish[];
  why: string[];
  source: string;
} {
  const upTo = (stripes: number): number => Math.max(1, Math.min(stripes, osts));
  const largest = Math.max(0, ...files.map(({ size }) => size));
  switch (use) {
    case "shards": {
      if (slowLinks) {
        const why = [`each OST is reached over a slow link of its own: ${upTo(8)} OSTs for a file`];
        return {
          wishes: [{ count: upTo(8), size: STRIPE }],
          why,
          source: "AWS FSx for Lustre, performance: 5 Gbit/s an OST",
        };
      }
      const few = count > 0 && count < osts;
      const wide = few || largest > LARGE;
      const why = !wide
        ? [
            `${count === 0 ? "many files" : formatNumber(count, "file")} on ${formatNumber(osts, "OST")}: one OST a file is enough, and costs the fewest locks and requests`,
          ]
        : few
          ? [
              `${formatNumber(count, "file")} on ${formatNumber(osts, "OST")}: ${upTo(4)} OSTs a file bring more of them to work`,
            ]
          : [`files above 8 GiB: ${upTo(4)} OSTs a file, so that the last ones of an epoch do not wait for one OST`];
      return {
        wishes: [{ count: wide ? upTo(4) : 1, size: STRIPE }],
        why,
        source: "HPE Cray and NERSC striping guides",
      };
    }
    case "small-files": {
      const dom = [current, above, mount]
        .flatMap((layout) => layout?.components ?? [])
        .find(({ pattern }) => pattern.includes("mdt"));
      const why = [
        "files below 1 MiB: one OST each, and better packed into shards (tar, TFRecord, MDS): each is an open of its own",
      ];
      if (dom === undefined) return { wishes: [{ count: 1, size: STRIPE }], why, source: "lfs-setstripe(1)" };
      why.push("this site keeps the beginning of files on the metadata server: a small file is then one request");
      const wishes = [
        { end: dom.end, count: 0, size: 0, mdt: true },
        { count: 1, size: STRIPE },
      ];
      return { wishes, why, source: "lfs-setstripe(1), Data on MDT" };
    }
    case "checkpoints": {
      const why = [
        `small parts stay on one OST, large ones grow to ${upTo(8)}: written once, read by all ranks at a resume`,
      ];
      const source = "lfs-setstripe(1) and lfs-migrate(1), progressive layouts";
      if (osts < 2) return { wishes: [{ count: 1, size: STRIPE }], why: ["there is one OST"], source };
      const wishes = [
        { end: BigInt(GIB), count: 1, size: STRIPE },
        { end: BigInt(16 * GIB), count: upTo(4), size: STRIPE },
        { count: upTo(8), size: 4 * STRIPE },
      ];
      return { wishes, why, source };
    }
    case "shared": {
      const why = [`read by many nodes at once: ${upTo(8)} OSTs share the load of one file`];
      return {
        wishes: [{ count: upTo(8), size: STRIPE }],
        why,
        source: "Lustre manual, choosing a striping; LU-10499",
      };
    }
  }
}

/** Whether the default gives files of these sizes about as many OSTs as wished, in stripes that are not small. */
function fitsWish(current: Layout, wishes: readonly Wish[], { use, osts, files }: AdviceInput): boolean {
  if (current.foreign !== undefined) return false;
  if (use === "small-files" && wishes[0]!.mdt === true) return hasDom(current);
  const sizes = use === "checkpoints" ? [4 * GIB, 64 * GIB] : [Math.max(1, ...files.map(({ size }) => size))];
  return sizes.every((size) => {
    const at = BigInt(size - 1);
    const wish = wishes.find(({ end }) => end === undefined || at < end)!;
    const part = current.components.find(({ start, end }) => start <= at && at < end);
    if (part === undefined) return false;
    // A self-extending part in reserve is striped as the part before it.
    const plain = part.extensionSize === undefined ? part : current.components[current.components.indexOf(part) - 1];
    if (plain === undefined || plain.pattern.includes("mdt")) return false;
    // 0: as the whole file system has it, one stripe.
    const count = plain.stripeCount < 0 ? osts * -plain.stripeCount : Math.max(1, plain.stripeCount);
    const smallStripes = count > 1 && plain.stripeSize > 0 && plain.stripeSize < MIB;
    const many = plain.stripeCount < 0 && osts > 32;
    return !smallStripes && !many && count <= WIDE[use] * wish.count && count >= Math.min(wish.count, osts) / 2;
  });
}

function misfitsOf({ files, osts, use }: AdviceInput, wishes: readonly Wish[]): { path: string; why: string }[] {
  return files.flatMap(({ path, size, layout }) => {
    const spread = spreadOf(layout, 0n, BigInt(size));
    const width = spread.osts.size;
    const wish = wishes.find(({ end }) => end === undefined || BigInt(size) <= end)!;
    if (size === 0 || width === 0 || wish.mdt === true) return [];
    const striped = readComponents(layout).filter(({ start, osts }) => start < size && osts.length > 1);
    const smallest = Math.min(...striped.map(({ stripeSize }) => stripeSize));
    if (width > WIDE[use] * wish.count) {
      return [{ path, why: `over ${width} OSTs, ${wish.count} would do: each open asks all of them for locks` }];
    }
    if (smallest < MIB)
      return [{ path, why: `stripes of ${smallest} bytes: a read of 8 MiB falls into many requests` }];
    if (size > 64 * MIB && width < Math.min(wish.count, osts) / 2)
      return [{ path, why: `on ${width} of ${osts} OSTs, ${wish.count} would read it faster` }];
    return [];
  });
}

function changeOf({ folder, current, mount }: AdviceInput, options: readonly string[]): Change {
  const line = (words: readonly string[]): string => ["lfs setstripe", ...words, quoted(folder)].join(" ");
  const before = current === undefined ? undefined : optionsOf(current);
  const everywhere = mount === undefined ? undefined : optionsOf(mount);
  // A folder without a default of its own has that of the whole file system; that of a folder above was copied when it was made.
  const undoOptions = before !== undefined && before.join(" ") === everywhere?.join(" ") ? ["-d"] : before;
  return {
    options,
    undoOptions,
    command: line(options),
    undo: undoOptions === undefined ? undefined : line(undoOptions),
    overrides: current === undefined ? undefined : describeLayout(current),
  };
}

export function poolOf(layout: Layout | undefined): string | undefined {
  return layout?.components.find(({ pool }) => pool !== undefined)?.pool;
}

/** `-c 4 -S 4M`, as one would set it. */
export function describeLayout(layout: Layout): string {
  return optionsOf(layout)?.join(" ") ?? (layout.foreign === undefined ? "none" : "a foreign layout");
}
