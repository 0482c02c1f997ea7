/**
 * Guard: do the bytes of a chunk hold what their own sizes say? The plugins for LZ4, bitshuffle and Blosc believe these sizes and read on behind
 * a chunk that is cut: what is there in memory became values, others at each read. That for bzip2 waits for the end of a stream without one for ever.
 *
 *   LZ4         │ u64 bytes │ u32 block bytes │ for each block: u32 stored bytes │ data │          big-endian
 *   bitshuffle  │ u64 bytes │ u32 block bytes │ for each block: u32 stored bytes │ data │ … │ bytes of the last few elements │
 *   Blosc       │ 12 bytes │ u32 stored bytes │ u32 start of each block │ …                        little-endian
 *
 *   bzip2       │ … │ 48 bits that end it │ 32 bits of checksum │ 0 to 7 bits │
 *
 * The plugins' own sources have no such check, and nothing in h5wasm is asked before a filter runs; `library.ts` puts this in front.
 *
 * @example
 * const wrong = chunkFault(32004, stored, []); // "LZ4 block 3 ends at byte 900, the chunk has 512", or undefined
 */
const BZIP2 = 307;
const LZ4 = 32004;
const BITSHUFFLE = 32008;
const BLOSC = 32001;

const HEAD = 12;
const BLOSC_HEAD = 16;
/** c-blosc's flag: the bytes follow as they are. */
const COPIED = 2;
/** Elements that bitshuffle takes together; fewer, at the end, are stored as they are. */
const TOGETHER = 8;
/** Of bitshuffle's blocks where the chunk does not say, in bytes and at least in elements. */
const USUAL_BLOCK = 8192;
const LEAST_BLOCK = 128;

const BZIP2_END = 0x177245385090n;
const BZIP2_END_BITS = 48;
const BZIP2_CHECKSUM_BITS = 32;
/** Bytes in which the end has to be. */
const BZIP2_TAIL = 24;

/** What is wrong with what filter `id` is about to undo; `parameters` of the filter are those of the dataset. */
export function chunkFault(id: number, stored: Uint8Array, parameters: readonly number[]): string | undefined {
  const view = new DataView(stored.buffer, stored.byteOffset, stored.length);
  if (id === BZIP2) return bzip2Fault(stored);
  if (id === LZ4) return lz4Fault(view);
  if (id === BITSHUFFLE) return bitshuffleFault(view, parameters);
  if (id === BLOSC) return bloscFault(view);
  return undefined;
}

function bzip2Fault(stored: Uint8Array): string | undefined {
  const tail = stored.subarray(-BZIP2_TAIL);
  let bits = 0n;
  for (const byte of tail) bits = (bits << 8n) | BigInt(byte);
  for (let below = BZIP2_CHECKSUM_BITS; below <= tail.length * 8 - BZIP2_END_BITS; below++) {
    if (BigInt.asUintN(BZIP2_END_BITS, bits >> BigInt(below)) === BZIP2_END) return undefined;
  }
  return `a bzip2 chunk of ${stored.length} bytes has no end`;
}

function lz4Fault(view: DataView): string | undefined {
  const head = headOf(view, "LZ4");
  if (typeof head === "string") return head;
  const { bytes, blockBytes } = head;
  if (bytes > 0 && blockBytes === 0) return `LZ4 blocks of 0 bytes cannot hold ${bytes}`;
  return blocksEnd(view, "LZ4", bytes === 0 ? 0 : Math.ceil(bytes / blockBytes), 0);
}

/** Parameters: version, revision, bytes of an element, elements of a block, codec (0: none, and no header). */
function bitshuffleFault(view: DataView, parameters: readonly number[]): string | undefined {
  const elementBytes = parameters[2] ?? 0;
  if ((parameters[4] ?? 0) === 0 || elementBytes === 0) return undefined;
  const head = headOf(view, "bitshuffle");
  if (typeof head === "string") return head;
  const elements = Math.floor(head.bytes / elementBytes);
  const perBlock = Math.floor(head.blockBytes / elementBytes) || usualBlock(elementBytes);
  const rest = elements % perBlock;
  const blocks = Math.floor(elements / perBlock) + (rest >= TOGETHER ? 1 : 0);
  return blocksEnd(view, "bitshuffle", blocks, (elements % TOGETHER) * elementBytes);
}

function usualBlock(elementBytes: number): number {
  return Math.max(Math.floor(USUAL_BLOCK / elementBytes / TOGETHER) * TOGETHER, LEAST_BLOCK);
}

function bloscFault(view: DataView): string | undefined {
  const has = view.byteLength;
  if (has < BLOSC_HEAD) return `a Blosc chunk of ${has} bytes has no header`;
  const stored = view.getUint32(12, true);
  if (stored > has) return `a Blosc chunk of ${stored} bytes, as it says, has ${has}`;
  if ((view.getUint8(2) & COPIED) !== 0) {
    const bytes = view.getUint32(4, true);
    return BLOSC_HEAD + bytes > has ? `a stored Blosc chunk of ${has} bytes cannot hold ${bytes}` : undefined;
  }
  return undefined;
}

function headOf(view: DataView, name: string): { bytes: number; blockBytes: number } | string {
  if (view.byteLength < HEAD) return `a chunk of ${view.byteLength} bytes has no ${name} header`;
  return { bytes: Number(view.getBigUint64(0)), blockBytes: view.getUint32(8) };
}

/** Walks over `blocks` blocks; `tail`: bytes that follow them. */
function blocksEnd(view: DataView, name: string, blocks: number, tail: number): string | undefined {
  const has = view.byteLength;
  let at = HEAD;
  for (let block = 0; block < blocks; block++) {
    at += 4;
    if (at <= has) at += view.getUint32(at - 4);
    if (at > has) return `${name} block ${block} of ${blocks} ends at byte ${at}, the chunk has ${has}`;
  }
  return at + tail > has ? `${name} needs ${at + tail} bytes, the chunk has ${has}` : undefined;
}
