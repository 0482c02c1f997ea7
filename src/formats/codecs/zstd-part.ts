/**
 * The first blocks of a Zstandard frame, decoded as far as they are asked for: the head of a frame in which the last record of
 * the frames before it ends.
 *
 * Contract: `frame` begins with a frame and may end behind any of its blocks. Throws an Error that says why. By fzstd, the only decoder here
 * that gives block after block. The checksum of a frame is that of all of it: it is not looked at.
 *
 * @example
 * const { length, chunks } = decodePart(frame, 1000); // frame.subarray(0, length) is enough for these 1000 bytes
 */
import { Decompress } from "fzstd";
import { BLOCK_HEADER_BYTES, blockHeaderAt, headerAt } from "./zstd-frame.ts";

/** `chunks`: at least `bytes` bytes, and at most one block more. `length`: of the whole blocks that they are decoded from. */
export function decodePart(frame: Buffer, bytes: number): { length: number; chunks: Uint8Array[] } {
  const header = headerAt(frame, 0);
  if (header === undefined) throw new Error("the Zstandard frame is cut");
  const chunks: Uint8Array[] = [];
  let done = 0;
  const stream = new Decompress((chunk) => {
    done += chunk.length;
    chunks.push(chunk);
  });
  let from = 0;
  let at = header.bytes;
  while (done < bytes) {
    if (at + BLOCK_HEADER_BYTES > frame.length) throw new Error("the Zstandard frame is cut");
    const block = blockHeaderAt(frame, at);
    at += BLOCK_HEADER_BYTES + block.stored;
    if (block.last && header.checksum) at += 4;
    if (at > frame.length) throw new Error("the Zstandard frame is cut");
    stream.push(frame.subarray(from, at), block.last);
    from = at;
    if (block.last && done < bytes) throw new Error(`the frame decodes to ${done} bytes, expected ${bytes}`);
  }
  return { length: at, chunks };
}
