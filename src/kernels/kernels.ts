import "./webassembly.ts";
/**
 * Kernels: the hot loops, over addresses in one WebAssembly memory (which may be shared between threads).
 * Two implementations of one interface: AssemblyScript compiled to `kernels.wasm`, and the plain TypeScript
 * twin (`twin.ts`) that is the oracle of the tests and the fallback where WebAssembly SIMD is missing.
 */

/** Bytes of read-only tables (CRC slices, varint shuffles) that `init` writes at `tables`. */
export const TABLE_BYTES = 128 * 1024;

/** Result of a kernel that can fail; offsets count from the `ptr` given to the kernel. */
export interface KernelFault {
  /** One of `FAULT`. */
  code: number;
  /** Record in which it was found, counted from the first record of the call. */
  record: number;
  /** Byte at which the record begins. */
  recordOffset: number;
  /** Byte at which the fault was seen. */
  offset: number;
  found: number;
  expected: number;
  /** Column (index in the plan) if one is concerned, else -1. */
  column: number;
}

export interface Kernels {
  readonly memory: WebAssembly.Memory;
  /** CRC32C (Castagnoli) of `length` bytes at `ptr`, continued from `seed` (a finished CRC; default 0). */
  crc32c(ptr: number, length: number, seed?: number): number;
  /** Copies n rows' bytes [rowOffset, rowOffset + bytes) to `out`, one behind the other. `rows`: address of u32[n]. */
  gather(rows: number, n: number, rowOffset: number, bytes: number, out: number): void;
}
