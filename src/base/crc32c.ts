/**
 * CRC32C (Castagnoli, RFC 3720) in plain TypeScript, for small files of our own (index headers and payloads).
 * Data goes through the kernels, which are about twice as fast and need no copy.
 *
 * @example
 * crc32c(Buffer.from("123456789")); // 0xe3069283
 */

const POLYNOMIAL = 0x82f63b78;

// Slicing by 4: table k holds the CRC of a byte followed by k zero bytes.
const TABLES: readonly Uint32Array[] = makeTables();

function makeTables(): Uint32Array[] {
  const tables = Array.from({ length: 4 }, () => new Uint32Array(256));
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
    tables[0]![byte] = crc;
  }
  for (let k = 1; k < 4; k++) {
    for (let byte = 0; byte < 256; byte++) {
      const before = tables[k - 1]![byte]!;
      tables[k]![byte] = (before >>> 8) ^ tables[0]![before & 255]!;
    }
  }
  return tables;
}

/** `seed`: a finished CRC to go on from. */
export function crc32c(bytes: Uint8Array, seed = 0): number {
  const [t0, t1, t2, t3] = TABLES as [Uint32Array, Uint32Array, Uint32Array, Uint32Array];
  let crc = ~seed;
  let at = 0;
  for (const end = bytes.length - 3; at < end; at += 4) {
    crc ^= bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    crc = t3[crc & 255]! ^ t2[(crc >>> 8) & 255]! ^ t1[(crc >>> 16) & 255]! ^ t0[crc >>> 24]!;
  }
  for (; at < bytes.length; at++) crc = (crc >>> 8) ^ t0[(crc ^ bytes[at]!) & 255]!;
  return ~crc >>> 0;
}
