/**
 * Scan of a WebDataset shard: a tar archive, plain or gzip, as samples in the order of the archive, 4 MiB a block.
 *
 * Contract: an archive without its end mark was cut, and bytes behind the mark are another archive: neither is passed over. The
 * sample in which an archive was cut may lack parts and is not given. A key that comes again behind another one is an error.
 *
 * @example
 * for await (const block of scan(shard, { kernels })) console.log(block.records, block.record(0));
 */
import { AthanorError } from "../../base/errors.ts";
import { NotFormat, RecordMalformed, RecordTruncated } from "../errors.ts";
import { FramedBlocks } from "../framed.ts";
import { FieldKinds, RecordFields } from "../record-fields.ts";
import { describe } from "../describe.ts";
import type { BlockColumns, IndexOptions, RawBlock, ScanEnd, ScannedBlock, ShardFiles, KeptKind } from "../types.ts";
import { Window } from "../window.ts";
import { encodingOf } from "./detect.ts";
import { SeenKeys } from "./keys.ts";
import { decodeSample, showSample, type Sample } from "./sample.ts";
import { SampleReader } from "./samples.ts";
import { looksLikeTar, TAR_BLOCK } from "./tar.ts";

const COPY = "the archive is damaged or was not copied to its end: copy it again";

export async function* scan({ object }: ShardFiles, options: IndexOptions): AsyncGenerator<ScannedBlock, ScanEnd> {
  const file = object.uri;
  const head = new Uint8Array(Math.min(TAR_BLOCK, object.size));
  await object.readInto(head, 0);
  const encoding = encodingOf(head);
  const window = new Window(object, encoding, options);
  const known = new FieldKinds();
  const blocks = new FramedBlocks(known);
  const seen = new SeenKeys();
  const reader = new SampleReader(0, (byteOffset) => ({ file, record: blocks.record, byteOffset }));
  let fault: AthanorError | undefined;
  try {
    await checkBegin(window, file);
    while (fault === undefined) {
      let found;
      try {
        found = reader.next(window.bytes, window.offset);
      } catch (error) {
        if (!(error instanceof AthanorError)) throw error;
        fault = error;
        break;
      }
      if ("need" in found) {
        const need = found.need + window.offset;
        // Members that are no part of a sample lie before it.
        window.advance(Math.min((reader.open?.begin ?? reader.at) - window.offset, window.bytes.length));
        if (!(await window.fill(need - window.offset))) fault = truncated(window, reader, blocks.record, file);
        continue;
      }
      const { sample } = found;
      if (sample !== undefined) {
        const block = blocks.at(sample.begin);
        if (block !== undefined) yield block;
        const before = seen.add(sample.key, sample.begin);
        if (before !== undefined) {
          fault = seenAgain(sample, before, blocks.record, file);
          break;
        }
        take(sample, window, blocks, file);
      }
      if ("endMark" in found) break;
      window.advance((reader.open?.begin ?? reader.at) - window.offset);
    }
    const rest = blocks.finish();
    if (rest !== undefined) yield rest;
    if (fault !== undefined) throw fault;
    await checkEnd(window, reader.at, blocks.record, file);
    const { kinds, ...end } = known.end();
    return { encoding, crc32c: window.crc32c, meta: { kinds }, ...end };
  } finally {
    window.close();
  }
}

function take(sample: Sample, window: Window, blocks: FramedBlocks, file: string): void {
  const { fields, record } = blocks;
  try {
    decodeSample(sample, window.bytes, window.offset, fields);
    fields.end();
  } catch (error) {
    fields.fail(error, { file, record, byteOffset: sample.begin });
  }
  const own = window.bytes.slice(sample.begin - window.offset, sample.end - window.offset);
  blocks.add(sample.begin, sample.end, () => showSample(sample, own));
}

async function checkBegin(window: Window, file: string): Promise<void> {
  const whole = await window.fill(TAR_BLOCK);
  const head = window.bytes.subarray(0, TAR_BLOCK);
  const zeros = head.every((byte) => byte === 0);
  // An archive of no members begins with its end mark.
  if (whole ? zeros || looksLikeTar(head) || isDamagedTar(head) : head.length === 0) return;
  throw new NotFormat(
    `not a tar archive: ${describe(window.bytes.subarray(0, 4096))}`,
    { file, record: 0, byteOffset: 0 },
    "give a folder or glob that holds WebDataset shards only",
  );
}

/** A header of ustar, whose checksum will tell what is wrong. */
function isDamagedTar(head: Uint8Array): boolean {
  return Buffer.from(head.subarray(257, 262)).toString("latin1") === "ustar";
}

/** Nothing but zeros behind the end mark. */
async function checkEnd(window: Window, at: number, record: number, file: string): Promise<void> {
  window.advance(at - window.offset);
  while (await window.fill(1)) {
    const other = window.bytes.findIndex((byte) => byte !== 0);
    if (other >= 0) {
      const byteOffset = window.offset + other;
      throw new RecordMalformed(
        `bytes behind the end mark of the archive at byte ${at}: two archives that were joined?`,
        { file, record, byteOffset },
        "make one archive a shard (`tar --concatenate`, or extract and pack again)",
      );
    }
    window.advance(window.bytes.length);
  }
}

function truncated(window: Window, reader: SampleReader, record: number, file: string): AthanorError {
  const size = window.offset + window.bytes.length;
  const where = { file, record, byteOffset: reader.at };
  if (size === reader.at) {
    const what = `the archive ends at byte ${size} without its end mark, expected 1024 zeros`;
    return new RecordTruncated(what, where, `${COPY}; if its writer never wrote the mark, append 1024 zeros`);
  }
  return new RecordTruncated(
    `the archive is ${size} bytes and ends inside the member that begins at byte ${reader.at}`,
    where,
    COPY,
  );
}

function seenAgain({ key, begin }: Sample, before: number, record: number, file: string): AthanorError {
  return new RecordMalformed(
    `members of sample ${JSON.stringify(key)} at byte ${begin}, which other samples part from its members at byte ${before}`,
    { file, record, byteOffset: begin },
    "write the members of a sample one behind the other (`tar --sort=name`), or give samples different keys",
  );
}

/** Decodes wanted fields of a block, or of a span of it. */
export function columns(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const { file, firstRecord, records } = raw;
  const { bytes, offset } = raw.segments[0]!;
  const { kinds } = raw.meta as { readonly kinds: { readonly [field: string]: KeptKind } };
  const set = new RecordFields(new FieldKinds(kinds), fields, bytes);
  const reader = new SampleReader(offset, (byteOffset) => ({ file, record: firstRecord + set.records, byteOffset }));
  const end = offset + bytes.length;
  for (let more = true; more && set.records < records;) {
    const found = reader.next(bytes, offset);
    let sample: Sample | undefined;
    if ("need" in found) {
      more = false;
      if (reader.at === end) sample = reader.open;
    } else {
      ({ sample } = found);
      more = !("endMark" in found);
    }
    if (sample === undefined) continue;
    try {
      decodeSample(sample, bytes, offset, set);
      set.end();
    } catch (error) {
      set.fail(error, { file, record: firstRecord + set.records, byteOffset: sample.begin });
    }
  }
  if (set.records === records && (reader.at === end || reader.open !== undefined)) return set.finish();
  throw new RecordMalformed(
    `${set.records} samples in the block, the index says ${records}`,
    { file, record: firstRecord + set.records, byteOffset: reader.at },
    "the shard is damaged, or was changed since it was indexed: copy it again, or run `athanor index`",
  );
}
