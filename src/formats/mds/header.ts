/**
 * Header of an MDS shard: how many samples, where each begins, and the columns.
 *
 * @example
 * const { samples, offsets, columns } = await readHeader(window, object, listed);
 */
import { NotFormat, RecordTruncated, ShardInvalid, Unsupported } from "../errors.ts";
import { describe } from "../describe.ts";
import type { Ahead } from "../window.ts";
import { parseLayout, type MdsColumn } from "./layout.ts";
import { REBUILD, type Listed } from "./listing.ts";
import { u32 } from "./sample.ts";

export interface MdsHeader {
  samples: number;
  /** Of each sample, and of the end of the last one. */
  offsets: Uint32Array;
  columns: MdsColumn[];
}

/** 256 MiB of offsets. MDS counts bytes in 32 bits, so that such samples would have less than 64 bytes each. */
const MAX_SAMPLES = 2 ** 26;
const MAX_CONFIG = 16 * 1024 * 1024;
const DAMAGED = "the shard is damaged: copy or write it again";

/** `size`: bytes of the (decompressed) shard if they are known. Leaves the window at the first sample. */
export async function readHeader(
  window: Ahead,
  file: string,
  size: number | undefined,
  listed: Listed | undefined,
): Promise<MdsHeader> {
  const cut = (expected: number): never => {
    throw new RecordTruncated(
      `the shard ends inside its header: found ${window.bytes.length} bytes, expected at least ${expected}`,
      { file, byteOffset: window.bytes.length },
      DAMAGED,
    );
  };
  if (!(await window.fill(8))) return cut(8);
  const samples = u32(window.bytes, 0);
  if (listed !== undefined && listed.entry.samples !== samples) {
    throw new ShardInvalid(
      `the shard's header says ${samples} samples, index.json says ${listed.entry.samples}`,
      { file, byteOffset: 0 },
      `copy the shard again; or ${REBUILD}`,
    );
  }
  const table = 4 + 4 * (samples + 1);
  const first = u32(window.bytes, 4);
  // What is no MDS at all seldom passes for a header whose first offset lies behind its offsets.
  if (first < table + 2 || first > table + MAX_CONFIG || (size !== undefined && first > size)) {
    const what = describe(window.bytes.subarray(0, 1024));
    const say = what.includes("no format that we know") ? "" : `; ${what}`;
    throw new NotFormat(
      `not an MDS shard: its header says ${samples} samples, the first one at byte ${first}${size === undefined ? "" : ` of ${size}`}${say}`,
      { file, record: 0, byteOffset: 0 },
      "give a folder or glob that holds MDS shards only, or copy the shard again",
    );
  }
  if (samples > MAX_SAMPLES) {
    throw new Unsupported(
      `a shard of ${samples} samples, at most ${MAX_SAMPLES} are read`,
      { file, byteOffset: 0 },
      "write smaller shards (size_limit of MDSWriter)",
    );
  }
  if (!(await window.fill(first))) return cut(first);
  const offsets = new Uint32Array(samples + 1);
  for (let i = 0; i <= samples; i++) offsets[i] = u32(window.bytes, 4 + 4 * i);
  const columns = parseLayout(window.bytes.slice(table, first), { file, byteOffset: table });
  const end = offsets[samples]!;
  if (listed !== undefined && size !== undefined && size === end && size !== listed.entry.bytes) {
    throw new ShardInvalid(
      `the shard is ${size} bytes, index.json says ${listed.entry.bytes}`,
      { file, byteOffset: 0 },
      `copy the shard again; or ${REBUILD}`,
    );
  }
  window.advance(first);
  return { samples, offsets, columns };
}
