// Writes Zstandard frames of raw and run-length blocks, by hand: any decoder takes them. Not the writer of anything that ships.
import { Xxh64 } from "../../../src/formats/codecs/xxh64.ts";

export interface FrameShape {
  /** Bytes of a block. @default 128 KiB */
  block?: number;
  /** The header says how long the content is. */
  sized?: boolean;
  checksum?: boolean;
}

const WINDOW_LOG = 20;

export function zstdFrame(
  content: Uint8Array,
  { block = 1 << 17, sized = true, checksum = true }: FrameShape = {},
): Buffer {
  const header = Buffer.alloc(sized ? 14 : 6);
  header.writeUInt32LE(0xfd2fb528, 0);
  header[4] = (sized ? 0xc0 : 0) | (checksum ? 4 : 0);
  header[5] = (WINDOW_LOG - 10) << 3;
  if (sized) header.writeBigUInt64LE(BigInt(content.length), 6);
  const parts: Uint8Array[] = [header];
  let at = 0;
  do {
    const piece = content.subarray(at, at + Math.min(block, 1 << 17));
    at += piece.length;
    const last = at === content.length ? 1 : 0;
    const repeated = piece.length > 1 && piece.every((byte) => byte === piece[0]);
    const head = Buffer.alloc(3);
    head.writeUIntLE((piece.length << 3) | (repeated ? 2 : 0) | last, 0, 3);
    parts.push(head, repeated ? piece.subarray(0, 1) : piece);
  } while (at < content.length);
  if (checksum) {
    const hash = new Xxh64();
    hash.update(content);
    const sum = Buffer.alloc(4);
    sum.writeUInt32LE(hash.low32());
    parts.push(sum);
  }
  return Buffer.concat(parts);
}

export function skippableFrame(bytes: number): Buffer {
  const frame = Buffer.alloc(8 + bytes);
  frame.writeUInt32LE(0x184d2a5e, 0);
  frame.writeUInt32LE(bytes, 4);
  return frame;
}
