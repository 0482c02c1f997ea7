/**
 * Schema of a Parquet file: its leaves with their levels, the tree by which records are put together again, and which
 * top-level fields can be columns: numbers, booleans and text, and lists of numbers in all forms that were ever written (three
 * levels, two levels, a repeated field without LIST).
 *
 * @example
 * const { leaves, root, fields } = readSchema(metadata.schema, "/d/a.parquet");
 */
import type { SchemaElement } from "hyparquet/src/types.js";
import { RecordMalformed } from "../errors.ts";
import type { ValueKind } from "../types.ts";
import { whyLeft } from "./left.ts";
import { isNested, leavesOf, ownNode } from "./nested.ts";

export type PhysicalType = NonNullable<SchemaElement["type"]>;

/** One stored column. Plain data: the leaves of fields stand in the shard's `meta`. */
export interface Leaf {
  /** Dotted path, for messages. */
  path: string;
  type: PhysicalType;
  /** Bytes of a FIXED_LEN_BYTE_ARRAY. */
  width: number;
  maxDef: number;
  maxRep: number;
  /** Bits, where integers are unsigned. */
  unsigned: 0 | 32 | 64;
}

/** A top-level field that can be a column. */
export interface ColumnField {
  name: string;
  leaf: number;
  kind: ValueKind;
  list: boolean;
  /** Definition levels below this one: the field is null. */
  nullBelow: number;
  /** A list's definition levels from here on stand for an element. */
  itemFrom: number;
  /** One leaf of a field of JSON; the others, of the same name, are its neighbours. */
  json?: true;
}

/** What a leaf's values are for eyes. */
export type Meaning =
  | { type: "plain" | "text" | "json" | "uuid" | "float16" | "date" | "int96" | "null" | "bool" }
  | { type: "decimal"; scale: number }
  | { type: "time" | "timestamp"; unit: "MILLIS" | "MICROS" | "NANOS"; utc: boolean };

/** How records are put together. `def`: the least definition level at which the node is not null. */
export type Node =
  | { kind: "leaf"; name: string; leaf: number; def: number; meaning: Meaning }
  | { kind: "struct"; name: string; leaf: number; def: number; children: Node[] }
  | { kind: "list"; name: string; leaf: number; def: number; itemDef: number; rep: number; item: Node }
  | { kind: "map"; name: string; leaf: number; def: number; itemDef: number; rep: number; key: Node; value: Node };

export interface FileSchema {
  leaves: Leaf[];
  root: Node[];
  fields: ColumnField[];
  /** Of fields of JSON, by name: leaves counted from the field's own first one. */
  nested: { [name: string]: Node };
  /** Names of fields that are no columns, with the reason. */
  left: { [name: string]: string };
}

const MAX_DEPTH = 64;

interface Element {
  element: SchemaElement;
  children: Element[];
}

export function readSchema(elements: readonly SchemaElement[], file: string): FileSchema {
  const builder = new Builder(file);
  const tree = builder.tree(elements);
  const root = tree.children.map((child) => builder.build(child, 0, 0, []));
  const fields: ColumnField[] = [];
  const names = new Set<string>();
  const nested: FileSchema["nested"] = {};
  const left: FileSchema["left"] = {};
  for (const node of root) {
    const field = columnField(node, builder.leaves);
    // Of two fields with one name the first one counts.
    const first = !names.has(node.name);
    if (field !== undefined && first) fields.push(field);
    const why = field === undefined && !isNested(node) && first ? whyLeft(node, builder.leaves) : undefined;
    if (why !== undefined) Object.defineProperty(left, node.name, { value: why, enumerable: true });
    if (isNested(node) && first) {
      Object.defineProperty(nested, node.name, { value: ownNode(node), enumerable: true });
      for (let leaf = node.leaf; leaf < node.leaf + leavesOf(node); leaf++) {
        fields.push({ name: node.name, leaf, kind: "bytes", list: false, nullBelow: 0, itemFrom: 0, json: true });
      }
    }
    names.add(node.name);
  }
  return { leaves: builder.leaves, root, fields, nested, left };
}

class Builder {
  readonly leaves: Leaf[] = [];
  private readonly file: string;

  constructor(file: string) {
    this.file = file;
  }

  /** The flat, depth-first list as a tree. */
  tree(elements: readonly SchemaElement[]): Element {
    let at = 0;
    const take = (depth: number): Element => {
      const element = elements[at++];
      if (element === undefined) this.fail("the schema names more children than it holds");
      if (depth > MAX_DEPTH) this.fail(`the schema is nested deeper than ${MAX_DEPTH} levels`);
      if (typeof element.name !== "string") this.fail("a schema element has no name");
      const count = element.num_children ?? 0;
      if (element.type !== undefined && count > 0) this.fail(`schema element "${element.name}" is both leaf and group`);
      if (count < 0 || count > elements.length - at)
        this.fail(`schema element "${element.name}" has ${count} children`);
      const children: Element[] = [];
      for (let i = 0; i < count; i++) children.push(take(depth + 1));
      return { element, children };
    };
    const tree = take(0);
    if (at !== elements.length) this.fail(`the schema holds ${elements.length} elements, its root names ${at}`);
    return tree;
  }

  build(node: Element, def: number, rep: number, path: readonly string[]): Node {
    const repeated = node.element.repetition_type === "REPEATED";
    const own = def + (node.element.repetition_type === "REQUIRED" ? 0 : 1);
    if (!repeated) return this.inner(node, own, rep, path);
    const leaf = this.leaves.length;
    const item = this.inner(node, own, rep + 1, path);
    return { kind: "list", name: node.element.name, leaf, def, itemDef: own, rep: rep + 1, item };
  }

  /** The node itself, whatever its own repetition is. */
  private inner(node: Element, def: number, rep: number, above: readonly string[]): Node {
    const { element, children } = node;
    const { name } = element;
    const path = [...above, name];
    const leaf = this.leaves.length;
    if (element.type !== undefined) return this.leaf(element, def, rep, path);
    const only = children.length === 1 ? children[0] : undefined;
    if (only?.element.repetition_type === "REPEATED") {
      if (isList(element)) {
        const item = this.listItem(node, only, def + 1, rep + 1, path);
        return { kind: "list", name, leaf, def, itemDef: def + 1, rep: rep + 1, item };
      }
      const [key, value] = only.children;
      if (isMap(element) && key !== undefined && only.children.length <= 2) {
        const inside = [...path, only.element.name];
        const place = { name, leaf, def, itemDef: def + 1, rep: rep + 1 };
        const keys = this.build(key, def + 1, rep + 1, inside);
        // A map without values is a list of its keys.
        return value === undefined
          ? { kind: "list", ...place, item: keys }
          : { kind: "map", ...place, key: keys, value: this.build(value, def + 1, rep + 1, inside) };
      }
    }
    const members = children.map((child) => this.build(child, def, rep, path));
    return { kind: "struct", name, leaf, def, children: members };
  }

  /** The element of a LIST, by the format's rules of backward compatibility. */
  private listItem(list: Element, repeated: Element, def: number, rep: number, path: readonly string[]): Node {
    const { element, children } = repeated;
    const [only] = children;
    const wraps =
      children.length === 1 &&
      only!.element.repetition_type !== "REPEATED" &&
      element.name !== "array" &&
      element.name !== `${list.element.name}_tuple` &&
      !isList(element);
    return wraps ? this.build(only!, def, rep, [...path, element.name]) : this.inner(repeated, def, rep, path);
  }

  private leaf(element: SchemaElement, def: number, rep: number, path: readonly string[]): Node {
    const { type, type_length: width = 0, name } = element;
    if (type === undefined || def > 255 || rep > 255) return this.fail(`column "${path.join(".")}" has no known type`);
    if (type === "FIXED_LEN_BYTE_ARRAY" && !(width > 0))
      this.fail(`column "${path.join(".")}" has values of ${width} bytes`);
    const leaf = this.leaves.length;
    this.leaves.push({ path: path.join("."), type, width, maxDef: def, maxRep: rep, unsigned: unsignedBits(element) });
    return { kind: "leaf", name, leaf, def, meaning: meaningOf(element) };
  }

  private fail(what: string): never {
    throw new RecordMalformed(`damaged Parquet footer: ${what}`, { file: this.file }, "copy the file again");
  }
}

function columnField(node: Node, leaves: readonly Leaf[]): ColumnField | undefined {
  const list = node.kind === "list";
  const inner = list ? node.item : node;
  if (inner.kind !== "leaf") return undefined;
  const leaf = leaves[inner.leaf]!;
  const kind = kindOf(leaf, inner.meaning);
  if (kind === undefined || leaf.maxRep > 1 || (list && kind === "bytes")) return undefined;
  return {
    name: node.name,
    leaf: inner.leaf,
    kind,
    list,
    nullBelow: node.def,
    itemFrom: list ? node.itemDef : leaf.maxDef,
  };
}

function kindOf({ type }: Leaf, { type: meaning }: Meaning): ValueKind | undefined {
  // What is stored is not what is meant: decimals have a scale, a null column has no values.
  if (["decimal", "float16", "null", "int96"].includes(meaning)) return undefined;
  switch (type) {
    case "BOOLEAN":
    case "INT32":
    case "INT64":
      return "int64";
    case "FLOAT":
    case "DOUBLE":
      return "float";
    case "BYTE_ARRAY":
    case "FIXED_LEN_BYTE_ARRAY":
      return "bytes";
    default:
      return undefined;
  }
}

function isList({ converted_type, logical_type }: SchemaElement): boolean {
  return converted_type === "LIST" || logical_type?.type === "LIST";
}

function isMap({ converted_type, logical_type }: SchemaElement): boolean {
  return converted_type === "MAP" || converted_type === "MAP_KEY_VALUE" || logical_type?.type === "MAP";
}

function unsignedBits({ type, converted_type, logical_type }: SchemaElement): 0 | 32 | 64 {
  const unsigned =
    converted_type?.startsWith("UINT_") === true || (logical_type?.type === "INTEGER" && !logical_type.isSigned);
  return !unsigned ? 0 : type === "INT64" ? 64 : type === "INT32" ? 32 : 0;
}

function meaningOf({ type, converted_type, logical_type, scale = 0 }: SchemaElement): Meaning {
  if (logical_type?.type === "DECIMAL") return { type: "decimal", scale: logical_type.scale ?? 0 };
  if (converted_type === "DECIMAL") return { type: "decimal", scale };
  switch (logical_type?.type) {
    case "NULL":
      return { type: "null" };
    case "STRING":
    case "ENUM":
      return { type: "text" };
    case "JSON":
      return { type: "json" };
    case "UUID":
      return { type: "uuid" };
    case "FLOAT16":
      return { type: "float16" };
    case "DATE":
      return { type: "date" };
    case "TIME":
      return { type: "time", unit: logical_type.unit, utc: logical_type.isAdjustedToUTC };
    case "TIMESTAMP":
      return { type: "timestamp", unit: logical_type.unit, utc: logical_type.isAdjustedToUTC };
    default:
  }
  switch (converted_type) {
    case "UTF8":
    case "ENUM":
      return { type: "text" };
    case "JSON":
      return { type: "json" };
    case "DATE":
      return { type: "date" };
    case "TIME_MILLIS":
    case "TIME_MICROS":
      return { type: "time", unit: converted_type === "TIME_MILLIS" ? "MILLIS" : "MICROS", utc: true };
    case "TIMESTAMP_MILLIS":
    case "TIMESTAMP_MICROS":
      return { type: "timestamp", unit: converted_type === "TIMESTAMP_MILLIS" ? "MILLIS" : "MICROS", utc: true };
    default:
  }
  return { type: type === "INT96" ? "int96" : type === "BOOLEAN" ? "bool" : "plain" };
}
