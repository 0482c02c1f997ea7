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
import { decodeFrame } from "./codecs/zstd.ts";
import { isSkippable, wholeFrameAt } from "./codecs/zstd-frame.ts";
import { MAX_FRAME_BYTES } from "./codecs/zstd-groups.ts";
import { decodePart } from "./codecs/zstd-part.ts";
import { StreamCorrupt } from "./errors.ts";
import type { RawBlock } from "./types.ts";

/** `restarts`: of the block table, all of the block's. `readyZstd` makes it fast. */
export function unpackBlock(raw: RawBlock, restarts: ArrayLike<number>): { raw: RawBlock; restarts: Uint32Array } {
  const { origin, segments, ...rest } = raw;
  const [segment] = segments;
  if (origin === undefined || segment === undefined || restarts.length < 2)
    throw new RangeError("a packed block has segments, an origin and two restarts at least");
  const [first, end] = [restarts[0]!, restarts[restarts.length - 1]!];
  // A copy: native decoders take no shared memory.
  const stored = Buffer.concat(segments.map(({ bytes }) => bytes));
  let decoded: Uint8Array;
  try {
    decoded = unpackFrames(stored, end);
  } catch (error) {
    throw new StreamCorrupt(
      `the Zstandard frames from compressed byte ${segment.offset} on cannot be decompressed: ${(error as Error).message}`,
      { file: raw.file, record: raw.firstRecord, byteOffset: segment.offset },
      "the file is damaged: copy or write it again",
      error,
    );
  }
  const bytes = decoded.subarray(first);
  return {
    raw: { ...rest, segments: [{ file: 0, offset: origin + first, length: bytes.length, field: 0, bytes }] },
    restarts: Uint32Array.from({ length: restarts.length - 1 }, (_, i) => restarts[i]! - first),
  };
}

/** The first `bytes` bytes that the frames decode to. */
function unpackFrames(stored: Buffer, bytes: number): Uint8Array {
  const out = new Uint8Array(bytes);
  let done = 0;
  const take = (chunk: Uint8Array): void => {
    const n = Math.min(chunk.length, bytes - done);
    out.set(chunk.subarray(0, n), done);
    done += n;
  };
  for (let at = 0; done < bytes;) {
    if (at >= stored.length) throw new Error(`they hold ${done} bytes, the index says ${bytes} at least`);
    const frame = wholeFrameAt(stored, at);
    if (frame === undefined) {
      decodePart(stored.subarray(at), bytes - done).chunks.forEach(take);
      break;
    }
    if (!isSkippable(stored.readUInt32LE(at)))
      take(decodeFrame(stored.subarray(at, frame.end), frame.most, MAX_FRAME_BYTES));
    at = frame.end;
  }
  return out;
}
