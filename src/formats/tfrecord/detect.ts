/**
 * Is it TFRecord, and how is it compressed? By content, never by name; and if not, what it really is.
 *
 * Contract: a plain shard begins with a length whose CRC fits; gzip and zlib shards do so once inflated. A file of 0 bytes
 * is a valid shard of 0 records.
 *
 * @example
 * detect(head)?.encoding; // "plain" | "gzip" | "zlib"
 * describe(head);         // "the file is a Git LFS pointer (…)"
 */
import { constants, gunzipSync, inflateSync } from "node:zlib";
import type { Detection } from "../types.ts";

export function detect(head: Uint8Array): Detection | undefined {
  if (head.length === 0) return { encoding: "plain" };
  if (beginsWithFrame(head)) return { encoding: "plain" };
  const encoding = compression(head);
  if (encoding === undefined) return undefined;
  const inflated = inflateHead(head, encoding);
  if (inflated === undefined) return undefined;
  if (beginsWithFrame(inflated)) return { encoding };
  // Too little came out to tell. A whole stream of 0 bytes is a shard of 0 records; one that is cut this early is taken
  // too, since its reader names the cut.
  if (inflated.length >= 12 || (inflated.length > 0 && inflateHead(head, encoding, true) !== undefined))
    return undefined;
  return { encoding };
}

/** What a file that `detect` refused seems to be, in words for an error message. */
export function describe(head: Uint8Array): string {
  const text = new TextDecoder("latin1").decode(head.subarray(0, 1024));
  if (text.startsWith("version https://git-lfs.github.com/spec/")) {
    const size = /^size (\d+)$/m.exec(text)?.[1];
    return `the file is a Git LFS pointer (the data was never downloaded${size === undefined ? "" : `; it names ${size} bytes`})`;
  }
  const encoding = compression(head);
  if (encoding !== undefined) {
    const inflated = inflateHead(head, encoding);
    return inflated === undefined
      ? `the file begins as ${encoding}, but cannot be inflated`
      : `the file is ${encoding} of something else: its content ${kindOf(inflated)}`;
  }
  if (head.length < 12) return `the file has ${head.length} bytes, a record takes 16 at least`;
  return `length CRC wrong at byte 0 and the file ${kindOf(head)}`;
}

const MAGICS: readonly [offset: number, magic: string, what: string][] = [
  [0, "PAR1", "begins as Parquet"],
  [0, "\x89HDF\r\n", "begins as HDF5"],
  [0, "PK\x03\x04", "begins as a ZIP archive"],
  [0, "\x28\xb5\x2f\xfd", "begins as Zstandard"],
  [0, "\x93NUMPY", "begins as a NumPy array"],
  [0, "MMIDIDX\0", "begins as a Megatron index"],
  [0, "BZh", "begins as bzip2"],
  [0, "\xfd7zXZ", "begins as xz"],
  [257, "ustar", "begins as a tar archive"],
];

function kindOf(head: Uint8Array): string {
  const text = new TextDecoder("latin1").decode(head.subarray(0, 1024));
  for (const [offset, magic, what] of MAGICS) if (text.startsWith(magic, offset)) return what;
  if (/^\s*<(!doctype html|html|head|body)/i.test(text)) return "begins as HTML";
  if (/^\s*<(\?xml|Error)/.test(text)) return "begins as XML";
  if (/^\s*[[{]/.test(text)) return "begins as JSON";
  // oxlint-disable-next-line no-control-regex
  if (text.length > 0 && !/[\0-\x08\x0e-\x1f]/.test(text)) return "begins as text";
  return "begins as no format that we know (damaged, or encrypted?)";
}

export function compression(head: Uint8Array): "gzip" | "zlib" | undefined {
  const [a, b] = head;
  if (a === undefined || b === undefined) return undefined;
  if (a === 0x1f && b === 0x8b) return "gzip";
  // RFC 1950: deflate, window ≤ 32 KiB, no dictionary, check bits.
  return (a & 0x0f) === 8 && a >> 4 <= 7 && (b & 0x20) === 0 && (a * 256 + b) % 31 === 0 ? "zlib" : undefined;
}

/** `whole`: undefined also if the head ends inside the stream, as it may otherwise. */
function inflateHead(head: Uint8Array, encoding: "gzip" | "zlib", whole = false): Uint8Array | undefined {
  const options = {
    finishFlush: whole ? constants.Z_FINISH : constants.Z_SYNC_FLUSH,
    maxOutputLength: 64 * 1024 * 1024,
  };
  try {
    return encoding === "gzip" ? gunzipSync(head, options) : inflateSync(head, options);
  } catch {
    return undefined;
  }
}

function beginsWithFrame(head: Uint8Array): boolean {
  if (head.length < 12) return false;
  const stored = new DataView(head.buffer, head.byteOffset, head.length).getUint32(8, true);
  let c = ~0;
  for (let i = 0; i < 8; i++) {
    c ^= head[i]!;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1;
  }
  c = ~c;
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0 === stored;
}
