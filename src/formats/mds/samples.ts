/**
 * Samples of an MDS shard one after the other, with what is wrong between them.
 *
 * @example
 * yield* scanSamples(window, object.uri, header, listed, new FramedBlocks(kinds));
 */
import type { AthanorError } from "../../base/errors.ts";
import { RecordMalformed, RecordTruncated, ShardInvalid } from "../errors.ts";
import type { FramedBlocks } from "../framed.ts";
import type { ScannedBlock } from "../types.ts";
import type { Ahead } from "../window.ts";
import type { MdsHeader } from "./header.ts";
import type { Listed } from "./listing.ts";
import { SampleDecoder } from "./sample.ts";

const DAMAGED = "the shard is damaged: copy or write it again";

/** The window stands at the first sample. Gives what is readable before a fault, then throws it. */
export async function* scanSamples(
  window: Ahead,
  file: string,
  { samples, offsets, columns }: MdsHeader,
  listed: Listed | undefined,
  blocks: FramedBlocks,
): AsyncGenerator<ScannedBlock, void> {
  const decoder = new SampleDecoder(columns);
  let fault: AthanorError | undefined;
  for (let i = 0; i < samples; i++) {
    const begin = offsets[i]!;
    const end = offsets[i + 1]!;
    fault = badOffsets(file, offsets, i, listed);
    if (fault !== undefined) break;
    const full = await window.fill(end - begin);
    if (!full) {
      fault = truncated(file, window, offsets, i, listed);
      break;
    }
    const block = blocks.at(begin);
    if (block !== undefined) yield block;
    const length = end - begin;
    const measured = decoder.measure(window.bytes, 0, length);
    const where = { file, record: i, byteOffset: begin };
    if (measured !== length) {
      const says = measured < 0 ? "end before their own sizes do" : `are ${measured} by their own sizes`;
      fault = new RecordMalformed(`the ${length} bytes of ${named(i, listed)} ${says}`, where, DAMAGED);
      break;
    }
    try {
      decoder.decode(window.bytes, 0, blocks.fields);
      blocks.fields.end();
    } catch (error) {
      blocks.fields.fail(error, where);
    }
    const own = window.bytes.slice(0, length);
    blocks.add(begin, end, () => decoder.show(own));
    window.advance(length);
  }
  const rest = blocks.finish();
  if (rest !== undefined) yield rest;
  if (fault === undefined && (await window.fill(1))) {
    fault = new ShardInvalid(
      `bytes behind the last sample, which ends at byte ${window.offset}`,
      { file, byteOffset: window.offset },
      DAMAGED,
    );
  }
  if (fault !== undefined) throw fault;
}

function badOffsets(
  file: string,
  offsets: Uint32Array,
  i: number,
  listed: Listed | undefined,
): AthanorError | undefined {
  const begin = offsets[i]!;
  const end = offsets[i + 1]!;
  const last = offsets.at(-1)!;
  if (begin <= end && end <= last) return undefined;
  const against = end < begin ? `before its begin, byte ${begin}` : `past the end of the shard (${last} bytes)`;
  return new RecordMalformed(
    `sample end offset ${end} of ${named(i, listed)} is ${against}`,
    { file, record: i, byteOffset: 4 + 4 * (i + 1) },
    DAMAGED,
  );
}

function truncated(
  file: string,
  window: Ahead,
  offsets: Uint32Array,
  i: number,
  listed: Listed | undefined,
): AthanorError {
  const size = window.offset + window.bytes.length;
  const says = listed === undefined ? `its header says ${offsets.at(-1)}` : `index.json says ${listed.entry.bytes}`;
  return new RecordTruncated(
    `the shard is ${size} bytes, ${says}: it ends inside ${named(i, listed)}, which is bytes ${offsets[i]} to ${offsets[i + 1]}`,
    { file, record: i, byteOffset: size },
    DAMAGED,
  );
}

function named(i: number, listed: Listed | undefined): string {
  return listed?.inSet(i) ?? `sample ${i}`;
}
