/**
 * Keys of the records of a shard, with the field builder of each that is wanted.
 *
 * @example
 * const keys = Keys.all();                              // scan: every key becomes a field
 * const keys = Keys.of([["ids", "int64"]]);            // columns: only these, of the index's kinds
 */
import type { KeptKind } from "../types.ts";
import { FieldBuilder } from "./field.ts";

export interface Key {
  /** As written, without the quotes. */
  raw: Uint8Array;
  /** Undefined: its values are passed over. */
  field: FieldBuilder | undefined;
}

/** Each field costs every block 5 bytes a record; a set with more keys than that has names for values. */
const MAX_FIELDS = 512;
/** Spellings that are remembered. */
const MAX_KEYS = 4096;

export class Keys {
  readonly fields = new Map<string, FieldBuilder>();
  /** Keys beyond MAX_FIELDS. */
  tooMany = false;
  private readonly free: boolean;
  private readonly known = new Map<string, Key>();
  private readonly order: Key[] = [];

  private constructor(free: boolean) {
    this.free = free;
  }

  static all(): Keys {
    return new Keys(true);
  }

  static of(fields: Iterable<readonly [name: string, kind: KeptKind]>): Keys {
    const keys = new Keys(false);
    for (const [name, kind] of fields) keys.fields.set(name, new FieldBuilder(name, kind));
    return keys;
  }

  /** The key that number `member` of a record was the last time. */
  guess(member: number): Key | undefined {
    return this.order[member];
  }

  /** The key of bytes [from, to), which are a valid string. */
  find(bytes: Buffer, from: number, to: number, member: number): Key {
    const written = bytes.toString("latin1", from, to);
    let key = this.known.get(written);
    if (key === undefined) {
      key = { raw: Uint8Array.prototype.slice.call(bytes, from, to), field: this.field(nameOf(bytes, from, to)) };
      if (this.known.size < MAX_KEYS) this.known.set(written, key);
    }
    if (member < MAX_FIELDS) this.order[member] = key;
    return key;
  }

  private field(name: string): FieldBuilder | undefined {
    const known = this.fields.get(name);
    if (known !== undefined || !this.free) return known;
    if (this.fields.size === MAX_FIELDS) {
      this.tooMany = true;
      return undefined;
    }
    const fresh = new FieldBuilder(name, "free");
    this.fields.set(name, fresh);
    return fresh;
  }
}

function nameOf(bytes: Buffer, from: number, to: number): string {
  return (JSON.parse(`"${bytes.toString("utf8", from, to)}"`) as string).toWellFormed();
}
