/**
 * Is it HDF5? Its superblock begins at byte 0, or behind a user block of 512 bytes or a power of two times that.
 *
 * @example
 * detect(head); // { encoding: "plain" } or undefined
 */
import type { Detection } from "../types.ts";

const SIGNATURE = [0x89, 0x48, 0x44, 0x46, 0x0d, 0x0a, 0x1a, 0x0a];

export function detect(head: Uint8Array): Detection | undefined {
  for (let at = 0; at + SIGNATURE.length <= head.length; at = at === 0 ? 512 : at * 2) {
    if (SIGNATURE.every((byte, i) => head[at + i] === byte)) return { encoding: "plain" };
  }
  return undefined;
}
