/**
 * What a file that no format takes seems to be, in words for an error message. By its first bytes; the name only says what it
 * was meant to be.
 *
 * @example
 * describe(head);                                // "the file is a Git LFS pointer (…)"
 * notAnyFormat(head, "/d/a.png", "a.png", true); // ATH_NOT_FORMAT: "of no format that is read (…): the file begins as a PNG image"
 */
import type { AthanorError } from "../base/errors.ts";
import { NotFormat } from "./errors.ts";
import { compression, inflateHead } from "./inflate-head.ts";

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
  return `the file ${kindOf(head)}`;
}

/** `meant`: what its name says it was to be. */
export function notAnyFormat(head: Uint8Array, file: string, read: readonly string[]): AthanorError {
  const meant = meantAs(file);
  const name = meant === undefined ? "" : `, though its name says ${meant}`;
  if (head.length === 0 && file.endsWith(".bin")) {
    return new NotFormat(
      "the file is empty, and the .idx that a Megatron .bin is read by is not beside it",
      { file, record: 0, byteOffset: 0 },
      "write or copy both again, or take the file away",
    );
  }
  return new NotFormat(
    `of no format that is read (${read.join(", ")}): ${describe(head)}${name}`,
    { file, record: 0, byteOffset: 0 },
    "give a folder or glob that holds shards only; a damaged shard has to be copied or written again",
  );
}

/** What the name of a file says that it holds; undefined: nothing, or TFRecord. */
export function meantAs(file: string): string | undefined {
  return SUFFIXES.find(([pattern]) => pattern.test(file))?.[1];
}

const SUFFIXES: readonly (readonly [RegExp, string])[] = [
  [/\.parquet$/i, "Parquet"],
  [/\.(h5|hdf5|hdf)$/i, "HDF5"],
  [/\.(json|jsonl|ndjson)(\.(gz|zst))?$/i, "JSON"],
  [/\.mds(\.[a-z0-9]+)?$/i, "MDS"],
  [/\.tar(\.gz)?$/i, "a tar archive"],
  [/\.npy$/i, "a NumPy array"],
];

const MAGICS: readonly (readonly [offset: number, magic: string, what: string])[] = [
  [0, "PAR1", "begins as Parquet"],
  [0, "\x89HDF\r\n", "begins as HDF5"],
  [0, "PK\x03\x04", "begins as a ZIP archive (.npz, PyTorch's .pt)"],
  [0, "\x28\xb5\x2f\xfd", "begins as Zstandard"],
  [0, "\x93NUMPY", "begins as a NumPy array"],
  [0, "MMIDIDX\0", "begins as a Megatron index"],
  [0, "TNTIDX\0", "begins as an old fairseq index"],
  [0, "ARROW1", "begins as an Arrow file"],
  [0, "\xff\xff\xff\xff", "begins as an Arrow stream"],
  [0, "Obj\x01", "begins as Avro"],
  [0, "ORC", "begins as ORC"],
  [0, "SQLite format 3", "begins as an SQLite database"],
  [0, "\x89PNG", "begins as a PNG image"],
  [0, "\xff\xd8\xff", "begins as a JPEG image"],
  [0, "GIF8", "begins as a GIF image"],
  [0, "%PDF", "begins as PDF"],
  [0, "\x7fELF", "begins as a program"],
  [0, "\x04\x22\x4d\x18", "begins as LZ4"],
  [0, "7z\xbc\xaf\x27\x1c", "begins as 7-Zip"],
  [0, "BZh", "begins as bzip2"],
  [0, "\xfd7zXZ", "begins as xz"],
  [257, "ustar", "begins as a tar archive"],
];

function kindOf(head: Uint8Array): string {
  if (head.length === 0) return "is empty";
  const text = new TextDecoder("latin1").decode(head.subarray(0, 1024));
  for (const [offset, magic, what] of MAGICS) if (text.startsWith(magic, offset)) return what;
  if (head[0] === 0x80 && head[1]! >= 2 && head[1]! <= 5) return "begins as a Python pickle";
  if (/^\s*<(!doctype html|html|head|body)/i.test(text)) return "begins as HTML";
  if (/^\s*<(\?xml|Error)/.test(text)) return "begins as XML";
  if (/^\s*[[{]/.test(text)) return "begins as JSON";
  // oxlint-disable-next-line no-control-regex
  if (!/[\0-\x08\x0e-\x1f]/.test(text)) return "begins as text";
  if (head.subarray(0, 512).every((byte) => byte === 0))
    return "begins with zeros (a hole, or a write that never came)";
  return "begins as no format that we know (damaged, or encrypted?)";
}
