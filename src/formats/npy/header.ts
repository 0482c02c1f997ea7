/**
 * The header of an `.npy` file (numpy/lib/format.py, NEP 1).
 *
 * ```
 * │ "\x93NUMPY" │ u8 major │ u8 minor │ u16 (from 2.0: u32) n │ n bytes: dict of descr, fortran_order, shape │ data │
 * ```
 * Looked at: npyjs, numpy-parser (no int64 beyond 2^53, no big-endian, no sizes checked).
 *
 * @example
 * const { type, offset, tokens } = await readHeader(object); // "<u2", 128, 100000
 */
import { ShardTruncated } from "../../storage/errors.ts";
import type { ReadableObject } from "../../storage/types.ts";
import { NotFormat, ShardInvalid, Unsupported } from "../errors.ts";
import { itemBytes, type TokenMeta } from "../tokens.ts";
import { parseLiteral, Tuple, type Literal } from "./literal.ts";

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
const MAX_HEADER = 1 << 20;
const INTEGERS =
  "save the ids as integers: numpy.save(path, array.astype(numpy.int32)), of a structured type one of its fields";
const AGAIN = "write it again with numpy.save";

export function hasMagic(head: Uint8Array): boolean {
  return head.length > 0 && MAGIC.every((byte, i) => i >= head.length || head[i] === byte);
}

/**
 * Where the tokens lie. Throws ATH_FORMAT_UNSUPPORTED for other arrays than flat ones of integers, ATH_SHARD_TRUNCATED, and
 * ATH_SHARD_INVALID for a header that says nothing.
 */
export async function readHeader(object: ReadableObject): Promise<TokenMeta> {
  const head = new Uint8Array(Math.min(12, object.size));
  if (head.length > 0) await object.readInto(head, 0);
  if (!hasMagic(head)) {
    const shown = Array.from(head, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    throw new NotFormat(
      `not .npy: the file has ${object.size} bytes and begins with ${shown || "nothing"}`,
      { file: object.uri, byteOffset: 0 },
      "give a folder or glob that holds .npy shards only",
    );
  }
  if (head.length < 10) throw truncated(object, 10);
  const [major, minor] = [head[6]!, head[7]!];
  if (major < 1 || major > 3) {
    throw unsupported(object, `version ${major}.${minor} of .npy, only 1 to 3 are known`, 6);
  }
  const begin = major === 1 ? 10 : 12;
  if (head.length < begin) throw truncated(object, begin);
  const view = new DataView(head.buffer);
  const length = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true);
  const offset = begin + length;
  if (length > MAX_HEADER) throw invalid(object, `a header of ${length} bytes`, 8);
  if (object.size < offset) throw truncated(object, offset);
  const raw = new Uint8Array(length);
  if (length > 0) await object.readInto(raw, begin);
  const { descr, shape } = parseHeader(object, raw, begin);
  const type = typeOf(object, descr, begin);
  if (shape.length !== 1) {
    throw unsupported(
      object,
      `an array of shape (${shape.join(", ")}), expected one dimension`,
      begin,
      "save array.reshape(-1)",
    );
  }
  const tokens = shape[0]!;
  const needed = offset + tokens * itemBytes(type);
  if (object.size < needed) throw truncated(object, needed);
  if (object.size > needed) throw invalid(object, `${object.size} bytes, the header says ${needed}`, needed);
  return { type, offset, tokens };
}

function parseHeader(object: ReadableObject, raw: Uint8Array, begin: number): { descr: Literal; shape: number[] } {
  let text = "";
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    // Refused below.
  }
  const header = parseLiteral(text);
  if (header instanceof Map && typeof header.get("fortran_order") === "boolean" && header.has("descr")) {
    const shape = header.get("shape");
    if (shape instanceof Tuple && shape.every((n) => Number.isSafeInteger(n) && (n as number) >= 0)) {
      return { descr: header.get("descr")!, shape: shape as number[] };
    }
  }
  throw invalid(object, "a header that is no dict of descr, fortran_order and shape", begin);
}

/** Of an integer type; "=" and none mean the order of the machine, all of which are little-endian here. */
function typeOf(object: ReadableObject, descr: Literal, begin: number): string {
  if (typeof descr !== "string") {
    throw unsupported(object, "values of a structured type are no token ids, expected integers", begin, INTEGERS);
  }
  const [, order = "", kind = ""] = /^([<>|=]?)([iu][1248])$/.exec(descr) ?? [];
  if (kind !== "") return `${order === ">" ? ">" : "<"}${kind}`;
  if (/^[<>|=]?(b1|\?|f\d+|c\d+|[SaUV]\d*|O8?|[mM]8(\[.*\])?)$/.test(descr)) {
    throw unsupported(
      object,
      `values of type ${JSON.stringify(descr)} are no token ids, expected integers`,
      begin,
      INTEGERS,
    );
  }
  throw invalid(object, `unknown type ${JSON.stringify(descr)}`, begin);
}

function truncated({ uri, size }: ReadableObject, needed: number): Error {
  return new ShardTruncated(
    `the array is cut: the file has ${size} bytes, its header needs ${needed}`,
    { file: uri, byteOffset: size },
    "copy the shard again",
  );
}

function invalid({ uri }: ReadableObject, what: string, byteOffset: number): Error {
  return new ShardInvalid(`no valid .npy: ${what}`, { file: uri, byteOffset }, AGAIN);
}

function unsupported({ uri }: ReadableObject, what: string, byteOffset: number, remedy = AGAIN): Error {
  return new Unsupported(what, { file: uri, byteOffset }, remedy);
}
