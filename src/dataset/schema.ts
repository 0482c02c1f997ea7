/**
 * Schema: merges what the index saw of each shard into the schema of the set.
 * A feature may be missing in some shards; two kinds under one name are an error that names both shards.
 */
import type { Field, Schema } from "../formats/types.ts";
import { SchemaConflict } from "./errors.ts";

export class SchemaMerge {
  private readonly root: string;
  private readonly seen = new Map<string, { field: Field; path: string }>();
  private readonly notColumns = new Map<string, string>();
  private bad = 0;

  /** `root`: for messages. */
  constructor(root: string) {
    this.root = root;
  }

  /** Throws ATH_SCHEMA_CONFLICT. The order in which shards are added makes no difference to the result. */
  add(path: string, schema: Schema): void {
    this.bad += schema.bad ?? 0;
    for (const [name, why] of Object.entries(schema.notColumns ?? {})) this.leaveOut(name, why);
    for (const field of schema.fields) {
      const seen = this.seen.get(field.name);
      if (seen === undefined) {
        this.seen.set(field.name, { field: { ...field }, path });
        continue;
      }
      // A shard with nothing but empty lists takes them for lists of integers.
      if (seen.field.kind !== field.kind && (seen.field.values === 0 || field.values === 0)) {
        const kept = seen.field.values === 0 ? field : seen.field;
        if (kept.json === true && kept.loose === true) {
          const { name, kind, json, loose } = kept;
          seen.field = mergeFields(
            { ...counts(seen.field), name, kind, json, loose },
            { ...counts(field), name, kind, json, loose },
          );
          continue;
        }
      }
      if (seen.field.kind === field.kind && seen.field.json !== field.json) {
        this.leaveOut(field.name, "holds text and objects");
      }
      if (seen.field.kind !== field.kind && field.loose === true && seen.field.loose === true) {
        if (seen.field.kind === "bytes" || field.kind === "bytes") this.leaveOut(field.name, "holds text and numbers");
        seen.field = mergeFields(asFloat(seen.field), asFloat(field));
        continue;
      }
      if (seen.field.kind !== field.kind) {
        throw new SchemaConflict(
          `feature "${field.name}" holds ${field.kind} values here and ${seen.field.kind} values in ${this.root}/${seen.path}`,
          { file: `${this.root}/${path}` },
          "all shards of a set share a schema: move one of the two elsewhere",
        );
      }
      seen.field = mergeFields(seen.field, field);
    }
  }

  /** Fields sorted by name. */
  result(): Schema {
    const fields = [...this.seen.values()].map(({ field }) => field).filter(({ name }) => !this.notColumns.has(name));
    const schema: Schema = { fields: fields.sort((a, b) => (a.name < b.name ? -1 : 1)) };
    if (this.bad > 0) schema.bad = this.bad;
    const left = [...this.notColumns].sort(([a], [b]) => (a < b ? -1 : 1));
    if (left.length > 0) schema.notColumns = Object.fromEntries(left);
    return schema;
  }

  /** Of several reasons the first by name counts, so that the order of shards makes no difference. */
  private leaveOut(name: string, why: string): void {
    const known = this.notColumns.get(name);
    this.notColumns.set(name, known === undefined || why < known ? why : known);
  }
}

type Counts = Pick<Field, "present" | "minLength" | "maxLength" | "values" | "list" | "unfit">;

function counts({ present, minLength, maxLength, values, list, unfit }: Field): Counts {
  return { present, minLength, maxLength, values, ...(list === true && { list }), ...(unfit && { unfit }) };
}

/** What numbers of a loose field are where one shard has fractions. */
function asFloat(field: Field): Field {
  return { ...counts(field), name: field.name, kind: "float", loose: true };
}

function mergeFields(a: Field, b: Field): Field {
  const field: Field = {
    name: a.name,
    kind: a.kind,
    present: a.present + b.present,
    // A shard that never holds the feature says nothing about its lengths.
    minLength: a.present === 0 ? b.minLength : b.present === 0 ? a.minLength : Math.min(a.minLength, b.minLength),
    maxLength: Math.max(a.maxLength, b.maxLength),
    values: a.values + b.values,
  };
  if (a.loose === true && b.loose === true) field.loose = true;
  if (a.json === true && b.json === true) field.json = true;
  if (a.list === true || b.list === true) field.list = true;
  if (a.unfit !== undefined && b.unfit !== undefined) {
    const { first } = a.unfit.first < b.unfit.first ? a.unfit : b.unfit;
    field.unfit = { records: a.unfit.records + b.unfit.records, first };
  } else if (a.unfit !== undefined || b.unfit !== undefined) field.unfit = (a.unfit ?? b.unfit)!;
  const min = pick(a.min, b.min, (x, y) => x < y);
  const max = pick(a.max, b.max, (x, y) => x > y);
  if (min !== undefined) field.min = min;
  if (max !== undefined) field.max = max;
  const both = a.present > 0 && b.present > 0 && a.kind === "int64";
  const prefix = both ? a.prefixMask === true && b.prefixMask === true : a.present === 0 ? b.prefixMask : a.prefixMask;
  if (prefix !== undefined) field.prefixMask = prefix;
  return field;
}

/** Decimal strings are compared as BigInt: they can pass 2^53. */
function pick(
  a: string | undefined,
  b: string | undefined,
  better: (x: bigint, y: bigint) => boolean,
): string | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return better(BigInt(b), BigInt(a)) ? b : a;
}
