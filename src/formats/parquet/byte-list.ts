/** Byte arrays of a Parquet page or dictionary, one behind the other. */

/** Byte arrays one behind the other; value i ends at ends[i]. */
export interface ByteList {
  bytes: Uint8Array;
  ends: Uint32Array;
}

/** More bytes than this in one page or block are not decoded at once. */
export const MAX_BYTES = 256 * 1024 * 1024;
