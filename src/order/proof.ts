/**
 * Proof: what was served, as numbers that can be recomputed (design §4.4.12).
 *
 * A row's hash is the chain of `mix.ts` over (position, shardKey, record, token); `shardKey` is the first 8
 * bytes (little-endian) of SHA-256 of `source name \0 relative shard path`. A rank appends to
 * `proof/RANK-START.jsonl` one header and one line a step:
 *
 *   {"version":1,"rank":0,"world":2,"start":"0","time":1764581045123,"view":"32 hex","data":{"32 hex":"32 hex"}}
 *   {"position":"0","rows":32,"sum":"1234"}       position: first of the step; sum mod 2^64 over this rank's rows
 *
 * So the sum over ranks of a step's lines is that of the positions [position, position + rows): it does not
 * depend on the world size. Lines are superseded, never erased: see `proof-files.ts`.
 *
 * @example
 * const sum = new ProofSum();
 * sum.add(position, shardKey("data", "a.tfrecord"), record, 0);
 * sum.value;                                                     // 64-bit bigint
 */
import { createHash } from "node:crypto";
import { Mixer } from "./mix.ts";
import type { Order } from "./order.ts";

/** What a sample is, whatever order it comes in. */
export interface Identity {
  shardKey: bigint;
  /** First record of the sample, counted in the shard. */
  record: number;
  /** Token offset in that record. */
  token: number;
  /** What stood in for it at one time or another, by the ledger, the newest last. */
  instead?: readonly Identity[];
}

export function shardKey(source: string, path: string): bigint {
  return createHash("sha256").update(`${source}\0${path}`).digest().readBigUInt64LE(0);
}

export function rowHash(position: number, key: bigint, record: number, token: number): bigint {
  return new Mixer().number(position).bigint(key).number(record).number(token).value;
}

/** Adds row hashes mod 2^64. */
export class ProofSum {
  rows = 0;
  #sum = 0n;

  add(position: number, key: bigint, record: number, token: number): void {
    this.#sum = BigInt.asUintN(64, this.#sum + rowHash(position, key, record, token));
    this.rows++;
  }

  get value(): bigint {
    return this.#sum;
  }
}

/** What the sample of a source is. */
export type Identify = (source: number, sample: number) => Identity;

/** Ways to choose between a record and what stood in for it that are tried for one step. */
const MOST_TRIES = 4096;

/**
 * The sum over positions [from, to), recomputed from the order and the index. Of records that others stood in for, the
 * newest one of the ledger counts; if that is not `found`, each may have been served itself or by an older one: data is
 * repaired, and storage fails for a while. `replaced`: rows of records that the ledger names.
 */
export function expectedSum(
  order: Order,
  from: number,
  to: number,
  identify: Identify,
  found?: bigint,
): { sum: bigint; replaced: number } {
  let sum = 0n;
  // Of each such row: what its hash may be, besides the one in the sum, as differences to that.
  const choices: bigint[][] = [];
  for (let position = from; position < to; position++) {
    const { source, sample } = order.locate(position);
    const { instead = [], ...own } = identify(source, sample);
    const hashes = [own, ...instead].map(({ shardKey: key, record, token }) => rowHash(position, key, record, token));
    const newest = hashes.at(-1)!;
    sum += newest;
    if (hashes.length > 1) choices.push(hashes.slice(0, -1).map((hash) => hash - newest));
  }
  let tries = 0;
  const fits = (rest: bigint, next: number): boolean => {
    if (BigInt.asUintN(64, rest) === 0n) return true;
    if (next === choices.length || ++tries > MOST_TRIES) return false;
    return fits(rest, next + 1) || choices[next]!.some((other) => fits(rest - other, next + 1));
  };
  const same = found !== undefined && fits(found - sum, 0);
  return { sum: same ? found : BigInt.asUintN(64, sum), replaced: choices.length };
}

/** Identities of a set with one sample a record; `shards` in file order. */
export function identities(
  shards: readonly { path: string; records: number }[],
  source: string,
): (sample: number) => Identity {
  const keys = shards.map(({ path }) => shardKey(source, path));
  const starts = new Float64Array(shards.length + 1);
  for (const [i, { records }] of shards.entries()) starts[i + 1] = starts[i]! + records;
  return (sample) => {
    let low = 0;
    for (let high = keys.length; high - low > 1;) {
      const middle = (low + high) >>> 1;
      if (starts[middle]! <= sample) low = middle;
      else high = middle;
    }
    return { shardKey: keys[low]!, record: sample - starts[low]!, token: 0 };
  };
}
