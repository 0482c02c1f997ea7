/**
 * NumPy arrays inside a sample: `.npy`, and the arrays of an `.npz`.
 *
 * The readers of npm (npyjs, tfjs-npy) give no integers of 64 bits, no byte order and no bounds; a zip reader (yauzl, fflate) would
 * read an .npz from a file, or take its own sizes on trust.
 *
 * @example
 * const { type, big, shape, at, count } = readNpy(bytes); // undefined: no numbers (text, records, objects)
 */
import { inflateRawSync } from "node:zlib";
import type { NumberType } from "../values.ts";
import { numberBytes } from "../values.ts";

export interface NpyArray {
  type: NumberType;
  /** The first byte is the highest. */
  big: boolean;
  shape: readonly number[];
  /** Column by column. */
  fortran: boolean;
  /** Of the first value. */
  at: number;
  count: number;
}

/** Short headers read last, and what they say (undefined: no numbers): arrays of one shape have equal ones. */
const known: { head: Uint8Array; array: NpyArray | undefined }[] = [];
const MOST_KNOWN = 8;
const MOST_HEAD = 512;

/** The array in bytes [from, to); its `at` counts from `from`. Throws an Error that says why the bytes are none. */
export function readNpy(bytes: Uint8Array, from = 0, to = bytes.length): NpyArray | undefined {
  const array = headerOf(bytes, from, to);
  if (array === undefined) return undefined;
  const values = to - from - array.at;
  const needed = array.count * numberBytes(array.type);
  if (needed !== values) {
    throw new Error(`an array of shape (${array.shape.join(", ")}) takes ${needed} bytes, found ${values}`);
  }
  return array;
}

function headerOf(bytes: Uint8Array, from: number, to: number): NpyArray | undefined {
  for (const { head, array } of known) {
    let same = 0;
    if (head.length <= to - from) while (same < head.length && bytes[from + same] === head[same]) same++;
    if (same === head.length) return array;
  }
  const { array, end } = parseHeader(bytes.subarray(from, to));
  if (end <= MOST_HEAD) {
    if (known.length === MOST_KNOWN) known.shift();
    known.push({ head: bytes.slice(from, from + end), array });
  }
  return array;
}

function parseHeader(bytes: Uint8Array): { array: NpyArray | undefined; end: number } {
  if (bytes.length < 10 || Buffer.from(bytes.subarray(0, 6)).toString("latin1") !== "\x93NUMPY") {
    throw new Error("no NumPy array: the magic bytes are missing");
  }
  const version = bytes[6]!;
  if (version < 1 || version > 3) throw new Error(`NumPy format ${version}, expected 1 to 3`);
  const wide = version > 1;
  if (bytes.length < 12) throw new Error("the array ends inside its header");
  const length = bytes[8]! + bytes[9]! * 256 + (wide ? bytes[10]! * 65536 + bytes[11]! * 16777216 : 0);
  const from = wide ? 12 : 10;
  const end = from + length;
  if (end > bytes.length) throw new Error("the array ends inside its header");
  const header = Buffer.from(bytes.subarray(from, end)).toString("latin1");
  const descr = /'descr'\s*:\s*(?:'([^']*)'|[[(])/.exec(header);
  const order = /'fortran_order'\s*:\s*(True|False)/.exec(header)?.[1];
  // A comma is a must between numbers: else a long run of digits has exponentially many ways not to fit.
  const shape = /'shape'\s*:\s*\(\s*((?:\d+L?\s*,\s*)*(?:\d+L?\s*)?)\)/.exec(header)?.[1];
  if (descr === null || order === undefined || shape === undefined) throw new Error("the array's header is damaged");
  const dimensions = (shape.match(/\d+/g) ?? []).map(Number);
  const count = dimensions.reduce((product, dimension) => product * dimension, 1);
  const match = /^([<>|=])([biuf])([1248])$/.exec(descr[1] ?? "");
  const type = match === null ? undefined : typeOf(`${match[2]}${match[3]}`);
  if (type === undefined) return { array: undefined, end };
  const fortran = order === "True" && dimensions.length > 1;
  return { array: { type, big: match![1] === ">", shape: dimensions, fortran, at: end, count }, end };
}

const TYPES: ReadonlySet<string> = new Set(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]);

function typeOf(name: string): NumberType | undefined {
  return TYPES.has(name) ? (name as NumberType) : undefined;
}

/** The values of an array in row-major order, as bytes. */
export function rowMajor(
  bytes: Uint8Array,
  { type, shape, fortran, at, count }: NpyArray,
): { bytes: Uint8Array; at: number } {
  if (!fortran) return { bytes, at };
  const size = numberBytes(type);
  const ordered = new Uint8Array(count * size);
  const index = shape.map(() => 0);
  const strides = shape.map((_, i) => shape.slice(0, i).reduce((product, dimension) => product * dimension, 1));
  for (let to = 0; to < count; to++) {
    let from = 0;
    for (let i = 0; i < shape.length; i++) from += index[i]! * strides[i]!;
    ordered.set(bytes.subarray(at + from * size, at + (from + 1) * size), to * size);
    for (let i = shape.length - 1; i >= 0 && ++index[i]! === shape[i]; i--) index[i] = 0;
  }
  return { bytes: ordered, at: 0 };
}

/** Decompressed bytes of all arrays of one .npz. */
const MAX_NPZ = 256 * 1024 * 1024;

/** The arrays of an .npz by name, as .npy bytes. `wants`: which are decompressed. Throws an Error that says why it is none. */
export function readNpz(bytes: Uint8Array, wants: (name: string) => boolean): [name: string, npy: Uint8Array][] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const directory = zipEnd(view);
  const arrays: [string, Uint8Array][] = [];
  let at = directory.offset;
  let total = 0;
  for (let i = 0; i < directory.entries; i++) {
    if (at + 46 > bytes.length || view.getUint32(at, true) !== 0x02014b50)
      throw new Error("the zip's directory is damaged");
    const method = view.getUint16(at + 10, true);
    const nameLength = view.getUint16(at + 28, true);
    const extraLength = view.getUint16(at + 30, true);
    const next = at + 46 + nameLength + extraLength + view.getUint16(at + 32, true);
    if (next > bytes.length) throw new Error("the zip's directory is damaged");
    const name = Buffer.from(bytes.subarray(at + 46, at + 46 + nameLength)).toString();
    const packed = view.getUint32(at + 20, true);
    const size = view.getUint32(at + 24, true);
    const local = view.getUint32(at + 42, true);
    at = next;
    const array = name.endsWith(".npy") ? name.slice(0, -4) : name;
    if (!wants(array)) continue;
    if (local + 30 > bytes.length || view.getUint32(local, true) !== 0x04034b50) throw new Error("the zip is damaged");
    const data = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    total += size;
    if (data + packed > bytes.length || total > MAX_NPZ)
      throw new Error(`array ${JSON.stringify(array)} does not fit the zip`);
    const own = bytes.subarray(data, data + packed);
    if (method === 0) arrays.push([array, own]);
    else if (method === 8) arrays.push([array, inflateRawSync(own, { maxOutputLength: Math.max(1, size) })]);
    else throw new Error(`array ${JSON.stringify(array)} is compressed by method ${method}, expected 0 or 8`);
    if (arrays.at(-1)![1].length !== size)
      throw new Error(`array ${JSON.stringify(array)} is damaged: its size is wrong`);
  }
  return arrays;
}

function zipEnd(view: DataView): { entries: number; offset: number } {
  for (let at = view.byteLength - 22; at >= 0 && at >= view.byteLength - 65558; at--) {
    if (view.getUint32(at, true) === 0x06054b50) {
      return { entries: view.getUint16(at + 10, true), offset: view.getUint32(at + 16, true) };
    }
  }
  throw new Error("no zip: its directory is missing");
}
