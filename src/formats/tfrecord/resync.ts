/**
 * Where records go on behind damaged framing: at the next whole record, one whose two CRCs fit. 64 bits of checksum: bytes
 * that only look like a record do not pass, so the answer is a function of the bytes alone.
 *
 * @example
 * const at = nextWhole(kernels, from, end); // address of the next whole record, or -1
 */
import { crc32c } from "../../base/crc32c.ts";
import { MAX_PAYLOAD } from "../../kernels/assembly/layout.ts";
import type { Kernels } from "../../kernels/kernels.ts";

export const HEADER_BYTES = 12;
/** Header and the CRC behind the payload. */
export const FRAME_BYTES = 16;

/** Payload bytes of the record whose header lies at `at` (12 bytes must be there); -1: none does. */
export function payloadBytes(bytes: Uint8Array, at: number): number {
  // Lengths pass 2^32 never, so that four zeros sort out nearly every place before a CRC is computed.
  if (bytes[at + 4] !== 0 || bytes[at + 5] !== 0 || bytes[at + 6] !== 0 || bytes[at + 7] !== 0) return -1;
  const length = u32(bytes, at);
  if (length > MAX_PAYLOAD) return -1;
  return masked(crc32c(bytes.subarray(at, at + 8))) === u32(bytes, at + 8) ? length : -1;
}

/** Address of the first header in [from, end), or -1. */
export function nextHeader(bytes: Uint8Array, from: number, end: number): number {
  for (let at = from; at + HEADER_BYTES <= end; at++) if (payloadBytes(bytes, at) >= 0) return at;
  return -1;
}

/** Do payload and its CRC fit? The record's header lies at `at`, all its bytes are there. */
export function payloadFits(kernels: Kernels, bytes: Uint8Array, at: number, length: number): boolean {
  return masked(kernels.crc32c(at + HEADER_BYTES, length)) === u32(bytes, at + HEADER_BYTES + length);
}

/** Address of the first whole record that begins at `from` or later and ends at `end` or before; -1: there is none. */
export function nextWhole(kernels: Kernels, from: number, end: number): number {
  const bytes = new Uint8Array(kernels.memory.buffer);
  for (let at = nextHeader(bytes, from, end); at >= 0; at = nextHeader(bytes, at + 1, end)) {
    const length = payloadBytes(bytes, at);
    if (at + length + FRAME_BYTES <= end && payloadFits(kernels, bytes, at, length)) return at;
  }
  return -1;
}

export function u32(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
}

export function masked(crc: number): number {
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}
