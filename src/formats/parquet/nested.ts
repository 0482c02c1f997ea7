/**
 * Nested: a field of structs (messages of a chat) as a column of JSON texts, one a row. Each of its leaves is a field of its own to the
 * index, of the same name.
 *
 * @example
 * const column = nestedColumn(node, leaves, slices, records); // text of row 0: [{"role":"user","content":"hi"}]
 */
import type { Value } from "../../base/json.ts";
import type { Column } from "../types.ts";
import type { LeafRows } from "./block.ts";
import { RecordReader } from "./record.ts";
import type { Leaf, Node } from "./schema.ts";

/** Is the field a column of JSON: a struct, or lists that hold some? Lists of text and maps alone are none. */
export function isNested(node: Node): boolean {
  return node.kind === "struct" || (node.kind === "list" && isNested(node.item));
}

/** The node with its leaves counted from its own first one. */
export function ownNode(node: Node, first = node.leaf): Node {
  const leaf = node.leaf - first;
  switch (node.kind) {
    case "leaf":
      return { ...node, leaf };
    case "struct":
      return { ...node, leaf, children: node.children.map((child) => ownNode(child, first)) };
    case "list":
      return { ...node, leaf, item: ownNode(node.item, first) };
    case "map":
      return { ...node, leaf, key: ownNode(node.key, first), value: ownNode(node.value, first) };
  }
}

/** How many leaves it has. */
export function leavesOf(node: Node): number {
  switch (node.kind) {
    case "leaf":
      return 1;
    case "struct":
      return node.children.reduce((sum, child) => sum + leavesOf(child), 0);
    case "list":
      return leavesOf(node.item);
    case "map":
      return leavesOf(node.key) + leavesOf(node.value);
  }
}

/** `leaves`, `slices`: of this node alone, in order. */
export function nestedColumn(
  node: Node,
  leaves: readonly Leaf[],
  slices: readonly LeafRows[],
  records: number,
): Column {
  const reader = new RecordReader(leaves, slices);
  const ends = new Uint32Array(records);
  const present = new Uint8Array(records);
  const texts: Buffer[] = [];
  let length = 0;
  for (let i = 0; i < records; i++) {
    const value = reader.read([node], i)[node.name]!;
    // An empty list has no bytes, as in other formats.
    if (value !== null && !(Array.isArray(value) && value.length === 0)) {
      const text = Buffer.from(jsonOf(node, value, leaves));
      texts.push(text);
      length += text.length;
    }
    if (value !== null) present[i] = 1;
    ends[i] = length;
  }
  const values = new Uint8Array(length);
  let at = 0;
  for (const text of texts) {
    values.set(text, at);
    at += text.length;
  }
  return { kind: "bytes", json: true, values, ends, present };
}

function jsonOf(node: Node, value: Value, leaves: readonly Leaf[]): string {
  if (value === null) return "null";
  switch (node.kind) {
    case "struct": {
      const members = value as { readonly [name: string]: Value };
      const texts = node.children.map(
        (child) => `${JSON.stringify(child.name)}:${jsonOf(child, members[child.name] ?? null, leaves)}`,
      );
      return `{${texts.join(",")}}`;
    }
    case "list":
      return `[${(value as readonly Value[]).map((item) => jsonOf(node.item, item, leaves)).join(",")}]`;
    case "map": {
      const pairs = (value as readonly [Value, Value][]).map(
        ([key, member]) => `[${jsonOf(node.key, key, leaves)},${jsonOf(node.value, member, leaves)}]`,
      );
      return `[${pairs.join(",")}]`;
    }
    case "leaf":
      return leafJson(leaves[node.leaf]!, value);
  }
}

/** A whole number of a float column stays a float. */
function leafJson({ type }: Leaf, value: Value): string {
  if (value instanceof Uint8Array) return JSON.stringify(Buffer.from(value).toString("base64"));
  if (typeof value === "string") return JSON.stringify(value.toWellFormed());
  if (typeof value !== "number") return typeof value === "bigint" ? `${value}` : JSON.stringify(value);
  return (type === "FLOAT" || type === "DOUBLE") && Number.isSafeInteger(value) ? `${value}.0` : `${value}`;
}
