/**
 * Left: why a top-level field is no column, for whoever looks for it in `inspect` or names it.
 *
 * @example
 * whyLeft(node, leaves); // "holds decimals"
 */
import type { Leaf, Node } from "./schema.ts";

/** Undefined for a field of nulls: to the set it is a shard without that field, which another shard can have as a column. */
export function whyLeft(node: Node, leaves: readonly Leaf[]): string | undefined {
  const what = held(node, leaves);
  return what === undefined ? undefined : `holds ${what}`;
}

function held(node: Node, leaves: readonly Leaf[]): string | undefined {
  switch (node.kind) {
    case "struct":
      return "objects";
    case "map":
      return "maps";
    case "list": {
      const item = held(node.item, leaves);
      return item === undefined ? undefined : `lists of ${item}`;
    }
    case "leaf":
  }
  const { type, width } = leaves[node.leaf]!;
  switch (node.meaning.type) {
    case "null":
      return undefined;
    case "decimal":
      return `decimals of scale ${node.meaning.scale}`;
    case "float16":
      return "float16 numbers";
    case "int96":
      return "INT96 timestamps";
    case "text":
    case "json":
      return "text";
    default:
  }
  if (type === "BYTE_ARRAY") return "bytes";
  return type === "FIXED_LEN_BYTE_ARRAY" ? `bytes of width ${width}` : "numbers";
}
