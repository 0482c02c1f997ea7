/**
 * What `lfs getstripe` prints → layouts, the second source beside the xattr (`lov.ts`): YAML of both shapes (from 2.16 on a list
 * `components:`, before a map `component0:` …) and the text for eyes, of files and folders, one block or many.
 *
 * Line by line and by hand, and not by the package `yaml`: that one is well kept, but the text for eyes is no YAML (tables, paths with colons)
 * and several blocks of `-y` follow each other without a separator, so this reader would be needed beside it. All of it is
 * printed from fixed words, one or a few `key: value` a line; keys that are not known are left alone.
 *
 * @example
 * parseGetstripe("lmm_stripe_count:  1\nlmm_stripe_size: 4194304\n…", "/d/a")[0]?.layout;
 */
import { LayoutInvalid } from "./errors.ts";
import { END_OF_FILE, emptyComponent } from "./layout.ts";
import type { Layout } from "./layout.ts";
import { FLAG_NAMES, PATTERN_NAMES } from "./lov.ts";

export interface PrintedLayout {
  /** Undefined: `-y` prints no names. */
  path: string | undefined;
  /** The default of a folder. */
  folder: boolean;
  layout: Layout;
}

/** The keys without the `lmm_` that folders do not have. */
const STARTS_PLAIN = "stripe_count";
const STARTS_COMPOSITE = new Set(["lcm_layout_gen", "lcm_mirror_count", "lcm_entry_count"]);

/** Throws ATH_LAYOUT_INVALID with `file` and the line. A path without a layout of its own gives no block. */
export function parseGetstripe(text: string, file: string): PrintedLayout[] {
  const reader = new Reader(file);
  for (const [i, line] of text.split("\n").entries()) reader.line(line.replace(/\r$/, ""), i + 1);
  return reader.end();
}

/** `counted`: its stripe_count has been read, without which a component does not end. */
type Draft = ReturnType<typeof emptyComponent> & { counted: boolean };

interface Block {
  path: string | undefined;
  folder: boolean;
  composite: boolean;
  generation: number | undefined;
  mirrors: number;
  components: Draft[];
  foreign: { type: number; flags: number; length: number } | undefined;
}

class Reader {
  private readonly file: string;
  private readonly done: PrintedLayout[] = [];
  private path: string | undefined;
  private block: Block | undefined;
  private at = 0;

  constructor(file: string) {
    this.file = file;
  }

  line(line: string, number: number): void {
    this.at = number;
    if (line.trim() === "" || /^\s*obdidx\s/.test(line) || HEADS.test(line)) return;
    // obdidx, objid, objid in hex, group
    const row = /^\s+(\d+)\s+\d+\s+0x[0-9a-f]+\s+(?:0x[0-9a-f]+|\d+)\s*$/i.exec(line);
    if (row !== null) return this.object(row[1] as string);
    // Only a path may begin without blanks and hold no key of ours at its beginning.
    if (line.startsWith("/") || (/^\S/.test(line) && !KEY.test(line) && line.includes("/"))) {
      this.finish();
      this.path = line;
      return;
    }
    const pairs = [...line.matchAll(PAIRS)];
    if (pairs.length === 0) throw this.invalid(`is not understood: ${JSON.stringify(line.slice(0, 80))}`);
    for (const [, key, value] of pairs) this.pair(key as string, value ?? "");
  }

  end(): PrintedLayout[] {
    this.finish();
    return this.done;
  }

  private pair(printed: string, value: string): void {
    const folder = !printed.startsWith("lmm_");
    const key = printed.replace(/^lmm_/, "");
    if (STARTS_COMPOSITE.has(key)) return this.header(key, value);
    if (key === "l_ost_idx") return this.object(value);
    if (key === "lcme_id") {
      const block = this.current();
      block.composite = true;
      block.folder ||= value === "N/A";
      block.components.push({ ...draft(), id: value === "N/A" ? undefined : this.number(value) });
      return;
    }
    if (key.startsWith("lfm_")) return this.foreign(key, value);
    if (key === STARTS_PLAIN && this.block?.composite !== true) {
      // Another block begins: nothing else tells where one of `-y` ends.
      if (this.block?.components.some(({ counted }) => counted) === true) this.finish();
      this.current().folder = folder;
    }
    const read = READERS.get(key);
    if (read === undefined) return;
    const block = this.current();
    if (block.components.length === 0) {
      if (block.composite) throw this.invalid(`has ${key} before the first component`);
      block.components.push(draft());
    }
    const component = block.components.at(-1)!;
    component.counted ||= key === STARTS_PLAIN;
    read(component, value, (text) => this.number(text));
    if (!block.composite && key === "layout_gen") block.generation = this.number(value);
  }

  private header(key: string, value: string): void {
    // The three stand before all components: one behind them is another block's.
    if (this.block !== undefined && (this.block.components.length > 0 || !this.block.composite)) this.finish();
    const block = this.current();
    block.composite = true;
    if (key === "lcm_layout_gen") block.generation = this.number(value);
    if (key === "lcm_mirror_count") block.mirrors = this.number(value);
  }

  private foreign(key: string, value: string): void {
    const block = this.current();
    block.foreign ??= { type: 0, flags: 0, length: 0 };
    if (key === "lfm_type") block.foreign.type = this.number(value);
    if (key === "lfm_flags") block.foreign.flags = this.number(value);
    if (key === "lfm_length") block.foreign.length = this.number(value);
  }

  private object(value: string): void {
    const component = this.block?.components.at(-1);
    if (component === undefined) throw this.invalid("has an object before any layout");
    const ost = this.number(value);
    if (ost < 0) throw this.invalid(`has an object on OST ${ost}`);
    component.osts.push(ost);
  }

  private current(): Block {
    this.block ??= {
      path: this.path,
      folder: false,
      composite: false,
      generation: undefined,
      mirrors: 1,
      components: [],
      foreign: undefined,
    };
    this.path = undefined;
    return this.block;
  }

  private finish(): void {
    const { block } = this;
    this.block = undefined;
    if (block === undefined) return;
    const { path, folder, composite, generation, mirrors, foreign } = block;
    for (const { counted, osts, stripeSize, start, end } of block.components) {
      if (foreign === undefined && !counted) throw this.invalid("ends a component without a stripe_count");
      if (osts.length > 0 && stripeSize <= 0)
        throw this.invalid(`ends a component with stripes of ${stripeSize} bytes`);
      if (start > end) throw this.invalid(`ends a component that begins at ${start}, behind its end ${end}`);
    }
    if (block.components.length === 0 && foreign === undefined) throw this.invalid("ends a layout without components");
    const components = block.components.map(({ counted: _, ...component }) => component);
    this.done.push({ path, folder, layout: { composite, generation, mirrors, components, foreign } });
  }

  private number(text: string): number {
    const value = Number(text);
    if (text !== "" && Number.isSafeInteger(value)) return value;
    throw this.invalid(`has ${JSON.stringify(text)} where a number belongs`);
  }

  private invalid(what: string): Error {
    return new LayoutInvalid(
      `line ${this.at} of \`lfs getstripe\` ${what}`,
      { file: this.file },
      "say `lfs --version` and this line in a report; reading the file goes on without its layout",
    );
  }
}

/** Lines of YAML that only hold what follows. */
const HEADS = /^\s*(components|component\d+|sub_layout|(lmm_)?objects):\s*$/;
const KEY = /^\s*-?\s*[a-z][\w.]*:/;
/** `- 0: { l_ost_idx: 1, l_fid: … }`, `stripe_count:  4 stripe_size: 1048576 …`, `lmm_pool:   flash`. Looked for at the beginning of words only:
 * a line of 128 KiB without a colon took 20 s. */
const PAIRS = /(?<![\w.])([a-z][\w.]*):\s*([^\s,{}]+(?:,[^\s,{}]+)*)?/g;

function draft(): Draft {
  return { ...emptyComponent(), counted: false };
}

type Read = (component: Draft, value: string, number: (text: string) => number) => void;

const READERS: ReadonlyMap<string, Read> = new Map<string, Read>([
  ["stripe_count", (component, value, number) => (component.stripeCount = number(value))],
  ["stripe_size", (component, value, number) => (component.stripeSize = number(value))],
  ["extension_size", (component, value, number) => (component.extensionSize = number(value))],
  ["stripe_offset", (component, value, number) => (component.stripeOffset = number(value))],
  ["layout_gen", (_component, value, number) => void number(value)],
  ["mdt_index", (component, value, number) => (component.mdt = number(value))],
  ["pool", (component, value) => (component.pool = value === "" ? undefined : value)],
  ["pattern", (component, value) => (component.pattern = ordered(value, PATTERN_NAMES))],
  [
    "lcme_flags",
    (component, value) => (component.flags = ordered(value.replace("prefer", "prefrd,prefwr"), FLAG_NAMES)),
  ],
  ["lcme_mirror_id", (component, value, number) => (component.mirror = value === "N/A" ? 0 : number(value))],
  ["lcme_extent.e_start", (component, value, number) => (component.start = extent(value, number))],
  ["lcme_extent.e_end", (component, value, number) => (component.end = extent(value, number))],
]);

function extent(value: string, number: (text: string) => number): bigint {
  if (value === "EOF") return END_OF_FILE;
  const end = /^\d{1,20}$/.test(value) ? BigInt(value) : undefined;
  return end !== undefined && end <= END_OF_FILE ? end : BigInt(number(value));
}

/** Words in the order of their bits. Old versions print `1` for raid0; `0` is none. */
function ordered(value: string, known: readonly string[]): string[] {
  const words = value.split(",").filter((word) => word !== "0" && word !== "");
  const named = words.map((word) => (word === "1" && known === PATTERN_NAMES ? "raid0" : word));
  const rank = (word: string): number => (known.includes(word) ? known.indexOf(word) : known.length);
  return [...named].sort((a, b) => rank(a) - rank(b));
}
