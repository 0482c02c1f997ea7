/**
 * Frame of Zstandard (RFC 8878 §3.1): what its header says and where it ends, by the headers of its blocks.
 *
 * @example
 * const { end, most } = frameAt(bytes, 0); // bytes.subarray(0, end) is one frame that decodes to `most` bytes at most
 */
export const ZSTD_MAGIC = 0xfd2fb528;
/** RFC 8878 §3.1.1.2.4: no block decodes to more, and none is stored in more. */
const MAX_BLOCK_BYTES = 128 * 1024;
/** What `zstd -d` takes without being asked for more. */
export const MAX_WINDOW_BYTES = 128 * 1024 * 1024;
/** Magic, descriptor, window, dictionary and content size. */
export const MOST_HEADER_BYTES = 18;
export const BLOCK_HEADER_BYTES = 3;

export interface FrameHeader {
  /** Its own bytes: the first block begins behind them. */
  bytes: number;
  /** What the frame says it decodes to; undefined: it does not say. */
  content: number | undefined;
  window: number;
  dictionary: boolean;
  /** Behind the last block stand 4 bytes of XXH64. */
  checksum: boolean;
}

export function isSkippable(magic: number): boolean {
  return magic >>> 4 === 0x184d2a5;
}

/** The header of a data frame; undefined: the bytes end inside it. */
export function headerAt(bytes: Buffer, at: number): FrameHeader | undefined {
  if (at + 5 > bytes.length) return undefined;
  const descriptor = bytes[at + 4]!;
  const single = (descriptor & 0x20) !== 0;
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3]!;
  const sizeBytes = descriptor >> 6 === 0 ? (single ? 1 : 0) : 1 << (descriptor >> 6);
  const length = 5 + (single ? 0 : 1) + dictionaryBytes + sizeBytes;
  if (at + length > bytes.length) return undefined;
  const sizeAt = at + length - sizeBytes;
  const content = sizeBytes === 0 ? undefined : Number(littleEndian(bytes, sizeAt, sizeBytes));
  const size = content === undefined || sizeBytes !== 2 ? content : content + 256;
  const base = single ? 0 : 2 ** (10 + (bytes[at + 5]! >> 3));
  return {
    bytes: length,
    content: size,
    window: single ? size! : base + (base / 8) * (bytes[at + 5]! & 7),
    dictionary: littleEndian(bytes, sizeAt - dictionaryBytes, dictionaryBytes) !== 0n,
    checksum: (descriptor & 4) !== 0,
  };
}

export interface BlockHeader {
  /** Stored, without these 3 bytes. */
  stored: number;
  /** Decoded, at most. */
  most: number;
  last: boolean;
}

/** Throws for a block that no encoder writes. */
export function blockHeaderAt(bytes: Buffer, at: number): BlockHeader {
  const header = bytes.readUIntLE(at, BLOCK_HEADER_BYTES);
  const type = (header >> 1) & 3;
  const size = header >> 3;
  if (type === 3) throw new Error("a Zstandard block of the reserved type");
  if (size > MAX_BLOCK_BYTES) throw new Error(`a Zstandard block of ${size} bytes`);
  return {
    stored: type === 1 ? 1 : size,
    most: type === 2 ? MAX_BLOCK_BYTES : size,
    last: (header & 1) === 1,
  };
}

/** Where the frame at `at` ends and what it decodes to at most. Throws where the bytes end inside it. */
export function frameAt(bytes: Buffer, at: number): { end: number; most: number } {
  const frame = wholeFrameAt(bytes, at);
  if (frame === undefined) throw new Error("the Zstandard frame is cut");
  return frame;
}

/** The same; undefined: the bytes end inside it. */
export function wholeFrameAt(bytes: Buffer, at: number): { end: number; most: number } | undefined {
  if (at + 8 > bytes.length) return undefined;
  const magic = bytes.readUInt32LE(at);
  if (isSkippable(magic)) {
    const end = at + 8 + bytes.readUInt32LE(at + 4);
    return end > bytes.length ? undefined : { end, most: 0 };
  }
  if (magic !== ZSTD_MAGIC) throw new Error("no Zstandard frame");
  const header = headerAt(bytes, at);
  if (header === undefined) return undefined;
  let next = at + header.bytes;
  let most = 0;
  for (let last = false; !last;) {
    if (next + BLOCK_HEADER_BYTES > bytes.length) return undefined;
    const block = blockHeaderAt(bytes, next);
    next += BLOCK_HEADER_BYTES + block.stored;
    most += block.most;
    last = block.last;
  }
  next += header.checksum ? 4 : 0;
  return next > bytes.length ? undefined : { end: next, most };
}

function littleEndian(bytes: Buffer, at: number, length: number): bigint {
  let value = 0n;
  for (let i = length - 1; i >= 0; i--) value = (value << 8n) | BigInt(bytes[at + i]!);
  return value;
}
