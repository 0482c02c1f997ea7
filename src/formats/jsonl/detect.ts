/**
 * Is it JSON Lines or a JSON array, and how is it compressed? By content: it begins with an object, or with a list of something.
 * Names decide where content says nothing: an empty file, a compressed one whose head cannot be decompressed.
 *
 * @example
 * detect(head, "a.jsonl.gz"); // { encoding: "gzip" }
 */
import type { ReadableObject } from "../../storage/types.ts";
import { inflateHead } from "../inflate-head.ts";
import type { Detection, Encoding } from "../types.ts";

const NAMED = /\.(jsonl?|ndjson)(\.(gz|gzip|zst|zstd))?$/i;
/** Text that may begin with a bracket and is no data: `[![badge]…` of Markdown, sections of INI files. */
const OTHER_TEXT = /\.(md|rst|txt|toml|ini|cfg|ya?ml|py|sh|js|ts|csv|tsv|html?|xml|ipynb|log|lock|model)$/i;
const HEAD_BYTES = 4096;

export function detect(head: Uint8Array, name: string): Detection | undefined {
  const named = NAMED.test(name);
  if (head.length === 0) return named ? { encoding: "plain" } : undefined;
  const encoding = compression(head);
  const text = encoding === "plain" ? head : encoding === "gzip" ? inflateHead(head, encoding) : undefined;
  if (text === undefined || text.length === 0) return named ? { encoding } : undefined;
  if (isUtf16(text)) return named ? { encoding } : undefined;
  return beginsAsJson(text, named, name) ? { encoding } : undefined;
}

/** The encoding of a file that is to be read as JSON. */
export async function encodingOf(object: ReadableObject): Promise<Encoding> {
  const head = new Uint8Array(Math.min(HEAD_BYTES, object.size));
  if (head.length > 0) await object.readInto(head, 0);
  return compression(head);
}

function compression(head: Uint8Array): Encoding {
  const [a, b, c, d] = head;
  if (a === 0x1f && b === 0x8b) return "gzip";
  if (a === 0x28 && b === 0xb5 && c === 0x2f && d === 0xfd) return "zstd";
  // A skippable frame of Zstandard.
  if (a !== undefined && (a & 0xf0) === 0x50 && b === 0x2a && c === 0x4d && d === 0x18) return "zstd";
  return "plain";
}

function isUtf16([a, b]: Uint8Array): boolean {
  return (a === 0xff && b === 0xfe) || (a === 0xfe && b === 0xff);
}

function beginsAsJson(text: Uint8Array, named: boolean, name: string): boolean {
  let at = text[0] === 0xef && text[1] === 0xbb && text[2] === 0xbf ? 3 : 0;
  const space = (): void => {
    while (at < text.length && [0x20, 0x09, 0x0a, 0x0d].includes(text[at]!)) at++;
  };
  space();
  // Nothing but white space: no records.
  if (at === text.length) return named;
  const first = text[at++]!;
  // A file that is named so and begins otherwise is bad JSON, if it is text at all.
  if (first !== 0x7b && first !== 0x5b) return named && isText(text);
  if (named) return true;
  if (OTHER_TEXT.test(name)) return false;
  space();
  const second = text[at];
  if (first === 0x7b) return second === 0x22 || second === 0x7d;
  return second === 0x7b || second === 0x5d;
}

/** No control bytes: else it is something else under this name. A Git LFS pointer or a page of HTML is no bad JSON either. */
function isText(text: Uint8Array): boolean {
  if (text.some((byte) => byte < 0x09 || (byte > 0x0d && byte < 0x20))) return false;
  return !/^\s*(<|version https:\/\/git-lfs)/.test(Buffer.from(text.subarray(0, 256)).toString("latin1"));
}
