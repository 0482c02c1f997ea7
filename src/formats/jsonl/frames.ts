/**
 * The bytes of a Zstandard file of many frames, decoded frame by frame, and the groups of frames that its blocks are read from.
 *
 * Contract: `read` as of a `Source`. A frame that cannot be decoded gives what a running decoder finds in it, then its error. Positions count
 * decoded bytes.
 */
import type { Kernels } from "../../kernels/kernels.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { decodeFrame } from "../codecs/zstd.ts";
import { frameAt, isSkippable } from "../codecs/zstd-frame.ts";
import { MAX_FRAME_BYTES, type FrameGroups } from "../codecs/zstd-groups.ts";
import { decodePart } from "../codecs/zstd-part.ts";
import { ZstdStream } from "../codecs/zstd-stream.ts";
import { StreamCorrupt } from "../errors.ts";
import { SequentialReader } from "../sequential.ts";
import type { Segment } from "../types.ts";
import type { Grid, Place, Source } from "./source.ts";

const READ_BYTES = 512 * 1024;
const SALVAGED_BYTES = 256 * 1024;

/** A group that has been decoded, or (the last one) that is in work: then it has no end. */
interface Decoded {
  group: number;
  origin: number;
  end: number | undefined;
}

export class FrameSource implements Source, Grid {
  private readonly object: ReadableObject;
  private readonly reader: SequentialReader;
  private readonly groups: FrameGroups;
  /** Those that are still asked for. */
  private readonly decoded: Decoded[] = [];
  /** Stored bytes of the group in work, and the frames of it that were decoded: [at, stop) of it, up to decoded byte `end`. */
  private bytes: Buffer = Buffer.alloc(0);
  private at = 0;
  private frames: { at: number; stop: number; from: number; end: number }[] = [];
  /** Decoded bytes so far. */
  private position = 0;
  /** The group in work. */
  private group = -1;
  /** The last bytes that were read, and where they lie in the file. */
  private chunk: Uint8Array = new Uint8Array(0);
  private chunkAt = 0;
  private salvage: { stream: ZstdStream; cause: Error } | undefined;
  private readonly salvaged = new Uint8Array(SALVAGED_BYTES);

  constructor(object: ReadableObject, groups: FrameGroups, kernels: Kernels) {
    this.object = object;
    this.groups = groups;
    this.reader = new SequentialReader(object, kernels, READ_BYTES);
  }

  get stored(): number {
    return this.reader.offset;
  }

  get crc32c(): number {
    return this.reader.crc32c;
  }

  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      if (this.salvage !== undefined) return await this.readSalvage(this.salvage);
      if (this.at === this.bytes.length && !(await this.nextGroup())) return undefined;
      const { bytes: stored, at } = this;
      let part: Uint8Array;
      try {
        const { end, most } = frameAt(stored, at);
        part = isSkippable(stored.readUInt32LE(at))
          ? new Uint8Array(0)
          : decodeFrame(stored.subarray(at, end), most, MAX_FRAME_BYTES);
        this.at = end;
      } catch (error) {
        const begin = this.groups.begin[this.group]! + at;
        const stream = new ZstdStream(this.object.uri, () => stream.push(stored.subarray(at), true), begin);
        this.salvage = { stream, cause: error as Error };
        continue;
      }
      const from = this.position;
      this.position += part.length;
      this.frames.push({ at, stop: this.at, from, end: this.position });
      if (this.at === stored.length) this.decoded.at(-1)!.end = this.position;
      if (part.length > 0) return part;
    }
  }

  close(): void {
    this.salvage?.stream.destroy();
    this.reader.close();
  }

  /** Positions must not go back. */
  borderBehind(position: number): number | undefined {
    const { decoded } = this;
    while (decoded.length > 0 && decoded[0]!.end !== undefined && decoded[0]!.end <= position) decoded.shift();
    return decoded[0]?.end;
  }

  place(begin: number, end: number): Place {
    const own = this.decoded.findIndex((group) => group.origin <= begin && (group.end ?? Infinity) > begin);
    const segments: Segment[] = [];
    for (const [i, group] of this.decoded.entries()) {
      if (i < own || (i > own && group.origin >= end) || group.origin === group.end) continue;
      const offset = this.groups.begin[group.group]!;
      const length = i === own ? this.lengthOf(group) : this.lengthTo(group, end);
      const last = segments.at(-1);
      if (last !== undefined && last.offset + last.length === offset) last.length += length;
      else segments.push({ file: 0, offset, length });
    }
    return { segments, origin: this.decoded[own]!.origin };
  }

  private lengthOf({ group }: Decoded): number {
    return this.groups.end[group]! - this.groups.begin[group]!;
  }

  /** What has to be read of a group for all that lies before position `end`. */
  private lengthTo(group: Decoded, end: number): number {
    const frame = group.group === this.group ? this.frames.find((one) => one.end >= end) : undefined;
    // Of a group whose bytes are gone: all of it.
    if (frame === undefined) return this.lengthOf(group);
    if (frame.end === end) return frame.stop;
    return frame.at + decodePart(this.bytes.subarray(frame.at, frame.stop), end - frame.from).length;
  }

  private async nextGroup(): Promise<boolean> {
    const { groups, object } = this;
    const group = this.group + 1;
    if (group === groups.begin.length) {
      // What stands behind the frames is part of the checksum.
      while (this.reader.offset < object.size) await this.reader.read();
      return false;
    }
    this.bytes = await this.take(groups.begin[group]!, groups.end[group]!);
    this.at = 0;
    this.frames = [];
    this.group = group;
    this.decoded.push({ group, origin: this.position, end: undefined });
    return true;
  }

  /** Bytes [begin, end) of the file; each file offset is read once, in order. */
  private async take(begin: number, end: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafeSlow(end - begin);
    for (let at = begin; at < end;) {
      while (this.chunkAt + this.chunk.length <= at) {
        this.chunkAt += this.chunk.length;
        this.chunk = (await this.reader.read())!;
      }
      const part = this.chunk.subarray(at - this.chunkAt, end - this.chunkAt);
      bytes.set(part, at - begin);
      at += part.length;
    }
    return bytes;
  }

  private async readSalvage({ stream, cause }: { stream: ZstdStream; cause: Error }): Promise<Uint8Array> {
    const n = await stream.readSome(this.salvaged);
    if (n > 0) {
      this.position += n;
      return this.salvaged.subarray(0, n);
    }
    const byteOffset = this.groups.begin[this.group]! + this.at;
    throw new StreamCorrupt(
      `the Zstandard frame at compressed byte ${byteOffset} cannot be decompressed: ${cause.message}`,
      { file: this.object.uri, byteOffset },
      "the file is damaged or was not copied to its end: copy it again",
      cause,
    );
  }
}
