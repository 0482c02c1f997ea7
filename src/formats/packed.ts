/**
 * Packed blocks: blocks whose segments are whole Zstandard frames, the last of them perhaps cut behind one of its blocks.
 *
 * Contract: `unpackBlock` gives the block as if the file were not compressed: one segment that begins with the first record, restarts that
 * count from there, offsets that count decompressed bytes. Frames that cannot be decoded, or to fewer bytes than the index
 * says, are ATH_STREAM_CORRUPT.
 *
 * ```
 * segments   │ frame │ frame │ … │ frame, or its head │
 * decoded    │ end of a record of the block before │ records … │ the rest: not of this block │
 *            0 = origin of the file              restarts[0]  restarts.at(-1)
 * ```
 */
import { decodeFrame, ownCopy } from "./codecs/zstd.ts";
import { isSkippable, wholeFrameAt } from "./codecs/zstd-frame.ts";
import { MAX_FRAME_BYTES } from "./codecs/zstd-groups.ts";
import { decodePart } from "./codecs/zstd-part.ts";
import { StreamCorrupt } from "./errors.ts";
import { BLOCK_BYTES, type RawBlock } from "./types.ts";

export interface UnpackedBlock {
  raw: RawBlock;
  restarts: Uint32Array;
  /** The bytes are not used any more: others may take their place. */
  release(): void;
}

/** Memory of blocks that are over, each of some 16 MiB: the collector would come for it late. */
const idle: Uint8Array[] = [];
const MOST_IDLE = 2;
const MAX_IDLE_BYTES = 64 * 1024 * 1024;

/** `restarts`: of the block table, all of the block's. `readyZstd` makes it fast. */
export function unpackBlock(raw: RawBlock, restarts: ArrayLike<number>): UnpackedBlock {
  const { origin, segments, ...rest } = raw;
  const [segment] = segments;
  if (origin === undefined || segment === undefined || restarts.length < 2)
    throw new RangeError("a packed block has segments, an origin and two restarts at least");
  const [first, end] = [restarts[0]!, restarts[restarts.length - 1]!];
  const { buffer, byteOffset, length } = segment.bytes;
  const stored =
    segments.length === 1 ? Buffer.from(buffer, byteOffset, length) : Buffer.concat(segments.map(({ bytes }) => bytes));
  const memory = take(end);
  try {
    unpackFrames(stored, memory.subarray(0, end));
  } catch (error) {
    throw new StreamCorrupt(
      `the Zstandard frames from compressed byte ${segment.offset} on cannot be decompressed: ${(error as Error).message}`,
      { file: raw.file, record: raw.firstRecord, byteOffset: segment.offset },
      "the file is damaged: copy or write it again",
      error,
    );
  }
  const bytes = memory.subarray(first, end);
  let isUsed = true;
  return {
    raw: { ...rest, segments: [{ file: 0, offset: origin + first, length: bytes.length, field: 0, bytes }] },
    restarts: Uint32Array.from({ length: restarts.length - 1 }, (_, i) => restarts[i]! - first),
    release: () => {
      if (isUsed && idle.length < MOST_IDLE && memory.length <= MAX_IDLE_BYTES) idle.push(memory);
      isUsed = false;
    },
  };
}

function take(bytes: number): Uint8Array {
  const at = idle.findIndex((memory) => memory.length >= bytes);
  if (at >= 0) return idle.splice(at, 1)[0]!;
  idle.pop();
  return new Uint8Array(Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES);
}

/** Fills `out` with the first bytes that the frames decode to. */
function unpackFrames(stored: Buffer, out: Uint8Array): void {
  const bytes = out.length;
  let done = 0;
  const put = (chunk: Uint8Array): void => {
    const n = Math.min(chunk.length, bytes - done);
    out.set(chunk.subarray(0, n), done);
    done += n;
  };
  for (let at = 0; done < bytes;) {
    if (at >= stored.length) throw new Error(`they hold ${done} bytes, the index says ${bytes} at least`);
    const frame = wholeFrameAt(stored, at);
    if (frame === undefined) {
      decodePart(stored.subarray(at), bytes - done).chunks.forEach(put);
      break;
    }
    if (!isSkippable(stored.readUInt32LE(at)))
      put(decodeFrame(ownCopy(stored.subarray(at, frame.end)), frame.most, MAX_FRAME_BYTES));
    at = frame.end;
  }
}
