/**
 * Listing: the `index.json` beside MDS shards, checked against the shard that is read.
 *
 * A shard describes itself, so that a folder without `index.json` is read as it is. One that is there says how many shards there
 * are and how large: what it contradicts was lost, cut or mixed up.
 *
 * @example
 * const listed = await findListed(shard); // undefined: no index.json
 * listed?.check(samples, bytes);
 */
import { ShardInvalid, Unsupported } from "../errors.ts";
import type { ShardFiles, ShardListing } from "../types.ts";

const REBUILD =
  "copy index.json again, or take it away: without it the shards are read by their own headers, which say the same";

interface Entry {
  /** Name of the decompressed shard, relative to the folder of index.json. */
  name: string;
  samples: number;
  /** Of the decompressed shard, and of the compressed one. */
  bytes: number;
  packedBytes: number | undefined;
  /** Samples of the shards listed before it. */
  before: number;
}

interface Listing {
  /** By name of the file, compressed or not. */
  entries: ReadonlyMap<string, Entry>;
  /** In byte order of names. */
  sorted: readonly Entry[];
}

/** What index.json says of one shard. */
export class Listed {
  readonly entry: Entry;
  constructor(entry: Entry) {
    this.entry = entry;
  }

  /** The number of a sample in the whole set, in words. */
  inSet(sample: number): string {
    return `sample ${sample} of the shard, ${this.entry.before + sample} of all that index.json lists`;
  }
}

/** Reads one index.json for all shards that it lists, one after the other. */
let last: { key: string; listing: Listing } | undefined;

/** Throws what is wrong with index.json itself, or with the shards beside this one. */
export async function findListed(shard: ShardFiles): Promise<Listed | undefined> {
  const { listing: where, object, path } = shard;
  if (where === undefined) return undefined;
  const { file, next } = where;
  const { entries, sorted } = await readListing(shard, where);
  const folder = file.path.slice(0, -"index.json".length);
  const entry = entries.get(path.slice(folder.length));
  if (entry === undefined) {
    const samples = sorted.reduce((sum, one) => sum + one.samples, 0);
    throw new ShardInvalid(
      `the shard is not in index.json, which lists ${sorted.length} ${sorted.length === 1 ? "shard" : "shards"} of ${samples} samples`,
      { file: object.uri },
      `remove the shard if it is left from another writer; else ${REBUILD}`,
    );
  }
  const following = sorted[(sorted.indexOf(entry) + 1) % sorted.length]!;
  const found = entries.get(next.slice(folder.length));
  if (found !== undefined && found !== following) {
    const missing = `${object.uri.slice(0, -path.length)}${folder}${following.name}`;
    throw new ShardInvalid(
      `the shard is missing: index.json lists it, with ${following.samples} samples from ${following.before} on`,
      { file: missing },
      "copy the shard again, or take index.json away to read the shards that are there",
    );
  }
  return new Listed(entry);
}

async function readListing(shard: ShardFiles, { file }: ShardListing): Promise<Listing> {
  const object = await shard.open(file);
  try {
    const key = `${object.uri}\0${file.size}\0${file.mtimeNs}`;
    if (last?.key === key) return last.listing;
    const bytes = new Uint8Array(object.size);
    await object.readInto(bytes, 0);
    const listing = parseListing(bytes, object.uri, shard.path);
    last = { key, listing };
    return listing;
  } finally {
    await object.close();
  }
}

export function parseListing(bytes: Uint8Array, file: string, shard: string): Listing {
  if (bytes.length === 0) throw new ShardInvalid("index.json is empty (0 bytes)", { file }, REBUILD);
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder().decode(bytes));
  } catch (error) {
    const { message } = error as Error;
    const at = /position (\d+)/.exec(message)?.[1];
    const byteOffset = at === undefined ? bytes.length : Number(at);
    const cut = byteOffset >= bytes.length ? "is cut short" : "is damaged";
    throw new ShardInvalid(`index.json ${cut}, it is no JSON: ${message}`, { file, byteOffset }, REBUILD, error);
  }
  const { version, shards } = (json ?? {}) as { version?: unknown; shards?: unknown };
  if (version !== 2) {
    throw new Unsupported(
      `MDS version ${JSON.stringify(version)} is not known, 2 is`,
      { file },
      "write the set with a version of MosaicML Streaming that writes version 2",
    );
  }
  if (!Array.isArray(shards) || shards.length === 0) {
    throw new ShardInvalid(`index.json lists no shards, although ${shard} is there`, { file }, REBUILD);
  }
  const entries = new Map<string, Entry>();
  const sorted: Entry[] = [];
  let before = 0;
  for (const [i, one] of (shards as unknown[]).entries()) {
    const { raw_data: raw, zip_data: zip, samples } = (one ?? {}) as Record<string, unknown>;
    const own = (raw ?? {}) as Record<string, unknown>;
    const packed = (zip ?? {}) as Record<string, unknown>;
    const { basename, bytes: size } = own;
    if (typeof basename !== "string" || !isCount(size) || !isCount(samples)) {
      throw new ShardInvalid(`index.json says no name, bytes or samples of shard ${i}`, { file }, REBUILD);
    }
    const packedBytes = isCount(packed["bytes"]) ? packed["bytes"] : undefined;
    const entry: Entry = { name: basename, samples, bytes: size, packedBytes, before };
    before += samples;
    if (entries.has(basename)) throw new ShardInvalid(`index.json lists ${basename} twice`, { file }, REBUILD);
    entries.set(basename, entry);
    if (typeof packed["basename"] === "string") entries.set(packed["basename"], entry);
    sorted.push(entry);
  }
  sorted.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  return { entries, sorted };
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

export { REBUILD };
