// A ReadableObject over bytes in memory.
import type { ReadableObject } from "../../../src/storage/types.ts";

export function memoryObject(uri: string, bytes: Uint8Array): ReadableObject & { reads: number } {
  return {
    uri,
    size: bytes.length,
    version: { size: bytes.length, mtimeNs: 0n },
    reads: 0,
    async readInto(target, offset) {
      this.reads++;
      const part = bytes.subarray(offset, offset + target.length);
      // As an I/O thread would: later, not in the same turn.
      await new Promise((resolve) => setImmediate(resolve));
      target.set(part);
      return part.length;
    },
    async close() {},
  };
}
