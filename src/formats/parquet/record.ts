/**
 * Records for eyes (`athanor cat`): put together from the levels of all leaves, nested as they are. Maps are lists of pairs,
 * decimals exact strings, dates and times ISO 8601, bytes without a meaning of their own stay bytes.
 *
 * @example
 * const record = recordsOf(schema, slices);
 * record(0); // { tokens: [1, 2], chat: [{ role: "user", content: "hi" }] }
 */
import type { Value } from "../../base/json.ts";
import { joinLevels, type LeafRows } from "./block.ts";
import { meant } from "./meaning.ts";
import { countLevel } from "./page.ts";
import type { FileSchema, Leaf, Node } from "./schema.ts";

type Members = { readonly [field: string]: Value };

export function recordsOf({ leaves, root }: FileSchema, slices: readonly LeafRows[]): (i: number) => Members {
  let reader: RecordReader | undefined;
  return (i) => {
    reader ??= new RecordReader(leaves, slices);
    return reader.read(root, i);
  };
}

export class RecordReader {
  private readonly leaves: readonly Leaf[];
  private readonly slices: readonly LeafRows[];
  /** Next entry and next value of each leaf. */
  private readonly entry: Uint32Array;
  private readonly reps: (Uint8Array | undefined)[];
  private readonly value: Uint32Array;
  private next = 0;

  constructor(leaves: readonly Leaf[], slices: readonly LeafRows[]) {
    this.leaves = leaves;
    this.slices = slices;
    this.entry = new Uint32Array(leaves.length);
    this.reps = slices.map(({ reps, entries }) => (reps === undefined ? undefined : joinLevels(reps, entries, 0)));
    this.value = new Uint32Array(leaves.length);
  }

  read(root: readonly Node[], record: number): Members {
    if (record !== this.next) this.seek(record);
    this.next = record + 1;
    return Object.fromEntries(root.map((node) => [node.name, this.node(node)]));
  }

  private seek(record: number): void {
    for (const [i, { ends, def }] of this.slices.entries()) {
      const at = ends === undefined ? record : record === 0 ? 0 : ends[record - 1]!;
      this.entry[i] = at;
      this.value[i] = def === undefined ? at : countLevel(def, 0, at, this.leaves[i]!.maxDef);
    }
  }

  private node(node: Node): Value {
    if (node.kind === "leaf") return this.leaf(node);
    if (this.level(node.leaf) < node.def) {
      this.pass(node);
      return null;
    }
    if (node.kind === "struct") {
      return Object.fromEntries(node.children.map((child) => [child.name, this.node(child)]));
    }
    const items: Value[] = [];
    if (this.level(node.leaf) < node.itemDef) {
      this.pass(node);
      return items;
    }
    do {
      items.push(node.kind === "list" ? this.node(node.item) : [this.node(node.key), this.node(node.value)]);
    } while (this.repeats(node.leaf, node.rep));
    return items;
  }

  private leaf({ leaf, meaning }: Extract<Node, { kind: "leaf" }>): Value {
    const present = this.level(leaf) === this.leaves[leaf]!.maxDef;
    this.entry[leaf]!++;
    if (!present) return null;
    const at = this.value[leaf]!++;
    return meant(this.leaves[leaf]!, meaning, this.slices[leaf]!.values, at);
  }

  /** Definition level of a leaf's next entry. */
  private level(leaf: number): number {
    const { def } = this.slices[leaf]!;
    return def === undefined ? this.leaves[leaf]!.maxDef : (def[this.entry[leaf]!] ?? 0);
  }

  private repeats(leaf: number, rep: number): boolean {
    const levels = this.reps[leaf];
    const entry = this.entry[leaf]!;
    if (levels !== undefined) return (levels[entry] ?? 0) >= rep;
    // One list: it goes on as far as its record.
    return entry < (this.slices[leaf]!.ends?.[this.next - 1] ?? 0);
  }

  /** Each leaf below a null or an empty list has one entry for it. */
  private pass(node: Node): void {
    if (node.kind === "leaf") this.entry[node.leaf]!++;
    else if (node.kind === "struct") for (const child of node.children) this.pass(child);
    else if (node.kind === "list") this.pass(node.item);
    else {
      this.pass(node.key);
      this.pass(node.value);
    }
  }
}
