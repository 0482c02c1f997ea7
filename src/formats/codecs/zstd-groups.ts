/**
 * Groups of frames of a Zstandard file: what can be decoded without what stands before it.
 *
 * Contract: a group is as many frames side by side as make 4 MiB stored or 16 MiB decoded; large skippable frames lie between groups.
 * Found by walking the headers of all blocks, which reads the file through once without decoding it and stops at the first frame
 * that is too large to be decoded at once. Undefined: a file of one frame, of such a large one, or one that only a running
 * decoder can say what is wrong with.
 *
 * @example
 * const groups = await frameGroups(object); // group g is bytes [groups.begin[g], groups.end[g]) of the file
 */
import type { ReadableObject } from "../../storage/types.ts";
import {
  BLOCK_HEADER_BYTES,
  blockHeaderAt,
  headerAt,
  isSkippable,
  MAX_WINDOW_BYTES,
  MOST_HEADER_BYTES,
  ZSTD_MAGIC,
} from "./zstd-frame.ts";

/** A frame that is larger, decoded (or stored, if it does not say), is left to a running decoder: pzstd -19 makes 32 MiB. */
export const MAX_FRAME_BYTES = 64 * 1024 * 1024;
const GROUP_STORED_BYTES = 4 * 1024 * 1024;
const GROUP_DECODED_BYTES = 16 * 1024 * 1024;
/** Seek tables, and whatever else somebody put between frames: not worth reading with a block. */
const MAX_SKIPPED_BYTES = 64 * 1024;
const READ_BYTES = 2 * 1024 * 1024;

export interface FrameGroups {
  /** Offsets in the file. */
  begin: number[];
  end: number[];
}

export async function frameGroups(object: ReadableObject): Promise<FrameGroups | undefined> {
  const groups: FrameGroups = { begin: [], end: [] };
  const peek = new Peek(object);
  let frames = 0;
  /** Of the group in work. */
  let decoded = 0;
  let open = false;
  for (let at = 0; at < object.size;) {
    const bytes = await peek.at(at, MOST_HEADER_BYTES);
    if (bytes.length < 8) return undefined;
    const magic = bytes.readUInt32LE(0);
    if (isSkippable(magic)) {
      const length = 8 + bytes.readUInt32LE(4);
      if (length > MAX_SKIPPED_BYTES) open = false;
      at += length;
      if (at > object.size) return undefined;
      continue;
    }
    const frame = magic === ZSTD_MAGIC ? await frameEnd(peek, at, bytes) : undefined;
    if (frame === undefined || frame.end > object.size) return undefined;
    frames++;
    if (!open) {
      groups.begin.push(at);
      decoded = 0;
      open = true;
    }
    at = frame.end;
    decoded += frame.most;
    const group = groups.begin.length - 1;
    groups.end[group] = at;
    if (at - groups.begin[group]! >= GROUP_STORED_BYTES || decoded >= GROUP_DECODED_BYTES) open = false;
  }
  return frames < 2 ? undefined : groups;
}

/** Undefined: no frame that can be decoded by itself. */
async function frameEnd(peek: Peek, at: number, head: Buffer): Promise<{ end: number; most: number } | undefined> {
  const header = headerAt(head, 0);
  if (header === undefined || header.dictionary || header.window > MAX_WINDOW_BYTES) return undefined;
  let next = at + header.bytes;
  let most = 0;
  for (let last = false; !last;) {
    const bytes = await peek.at(next, BLOCK_HEADER_BYTES);
    if (bytes.length < BLOCK_HEADER_BYTES) return undefined;
    try {
      const block = blockHeaderAt(bytes, 0);
      next += BLOCK_HEADER_BYTES + block.stored;
      most += block.most;
      last = block.last;
    } catch {
      return undefined;
    }
    if ((header.content ?? most) > MAX_FRAME_BYTES || next - at > MAX_FRAME_BYTES) return undefined;
  }
  return { end: next + (header.checksum ? 4 : 0), most: header.content ?? most };
}

/** Bytes of a file at rising offsets. */
class Peek {
  private readonly object: ReadableObject;
  private readonly buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  private from = 0;
  private length = 0;

  constructor(object: ReadableObject) {
    this.object = object;
  }

  /** `n` bytes from `offset` on, fewer at the end; valid until the next call. */
  async at(offset: number, n: number): Promise<Buffer> {
    const end = Math.min(offset + n, this.object.size);
    if (offset < this.from || end > this.from + this.length) {
      this.from = offset;
      this.length = Math.min(READ_BYTES, this.object.size - offset);
      if (this.length <= 0) return this.buffer.subarray(0, 0);
      this.length = await this.object.readInto(this.buffer.subarray(0, this.length), offset);
    }
    const at = offset - this.from;
    return this.buffer.subarray(at, Math.min(at + n, this.length));
  }
}
