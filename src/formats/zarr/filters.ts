/**
 * Filters of numcodecs, undone: bytes in, bytes out, with the types that stand in their own configuration (little-endian
 * unless it says `>`). No JavaScript library has them all: numcodecs 0.3.2 has compressors only, zarrita none but delta's kin.
 *
 * @example
 * FILTERS["delta"]!.undo(bytes, { dtype: "<i4" }); // running sums
 */
import type { CodecSpec } from "./spec.ts";
import { ChunkFault } from "./faults.ts";
import { unshuffleBytes } from "../../kernels/shuffle.ts";
import { aligned, swapped } from "./cells.ts";
import { dtypeV2, type DataType } from "./dtype.ts";

type Config = CodecSpec["config"];

export interface Filter {
  undo(data: Uint8Array, config: Config): Uint8Array;
  /** The type that it stores, and the one that it gives back. Undefined: the configuration is none. Absent: type and size stay. */
  types?(config: Config): { stored: DataType; given: DataType } | undefined;
}

export const FILTERS: { readonly [name: string]: Filter } = {
  delta: { types: dtypeAsType, undo: (data, config) => mapped(data, typesOf(dtypeAsType, config), runningSums) },
  fixedscaleoffset: {
    types: dtypeAsType,
    undo: (data, config) => {
      const scale = Number(config["scale"]);
      const offset = Number(config["offset"]);
      return mapped(data, typesOf(dtypeAsType, config), (from, to) => {
        const whole = to instanceof BigInt64Array || to instanceof BigUint64Array;
        for (let i = 0; i < from.length; i++) {
          const value = Number(from[i]) / scale + offset;
          to[i] = whole ? BigInt(Math.trunc(Number.isFinite(value) ? value : 0)) : value;
        }
      });
    },
  },
  // What is lost in writing does not come back: only the type is undone.
  quantize: { types: dtypeAsType, undo: (data, config) => mapped(data, typesOf(dtypeAsType, config), converted) },
  bitround: { undo: (data) => data },
  astype: {
    types: (config) => pair(config["encode_dtype"], config["decode_dtype"]),
    undo: (data, config) =>
      mapped(
        data,
        typesOf((c) => pair(c["encode_dtype"], c["decode_dtype"]), config),
        converted,
      ),
  },
  shuffle: { undo: (data, config) => unshuffled(data, Number(config["elementsize"] ?? 4)) },
};

type Numbers =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array;

interface Side {
  type: DataType;
  big: boolean;
}

function side(name: unknown): Side | undefined {
  const found = dtypeV2(name);
  return found !== undefined && viewKind(found.type) !== undefined ? found : undefined;
}

function pair(stored: unknown, given: unknown): { stored: DataType; given: DataType } | undefined {
  const [from, to] = [side(stored), side(given)];
  return from === undefined || to === undefined ? undefined : { stored: from.type, given: to.type };
}

function dtypeAsType(config: Config): { stored: DataType; given: DataType } | undefined {
  return pair(config["astype"] ?? config["dtype"], config["dtype"]);
}

interface Sides {
  stored: Side;
  given: Side;
}

function typesOf(types: NonNullable<Filter["types"]>, config: Config): Sides {
  if (types(config) === undefined) throw new ChunkFault("malformed", "a filter's type is none that we know");
  const given = side(config["decode_dtype"] ?? config["dtype"])!;
  const stored = side(config["encode_dtype"] ?? config["astype"] ?? config["dtype"])!;
  return { stored, given };
}

function mapped(data: Uint8Array, { stored, given }: Sides, fill: (from: Numbers, to: Numbers) => void): Uint8Array {
  if (data.length % stored.type.size !== 0)
    throw new ChunkFault("malformed", `${data.length} bytes are no whole number of elements of ${stored.type.size}`);
  const from = view(stored.big ? swapped(data, stored.type.size) : aligned(data, stored.type.size), stored.type);
  const out = new Uint8Array(from.length * given.type.size);
  fill(from, view(out, given.type));
  return given.big ? swapped(out, given.type.size) : out;
}

/** Wraps as NumPy's sums do; those of integers narrower than the result are made in its width. */
function runningSums(from: Numbers, to: Numbers): void {
  if (to instanceof BigInt64Array || to instanceof BigUint64Array) {
    let sum = 0n;
    for (let i = 0; i < from.length; i++) to[i] = sum = BigInt.asIntN(64, sum + BigInt(from[i]!));
    return;
  }
  const whole = !(to instanceof Float32Array || to instanceof Float64Array);
  let sum = 0;
  for (let i = 0; i < from.length; i++) {
    sum = whole ? (sum + Number(from[i])) | 0 : sum + Number(from[i]);
    to[i] = sum;
    if (!whole) sum = to[i] as number;
  }
}

function converted(from: Numbers, to: Numbers): void {
  const whole = to instanceof BigInt64Array || to instanceof BigUint64Array;
  const exact = from instanceof BigInt64Array || from instanceof BigUint64Array;
  for (let i = 0; i < from.length; i++) {
    const value = from[i]!;
    if (whole) to[i] = exact ? (value as bigint) : BigInt(Math.trunc(Number.isFinite(value) ? Number(value) : 0));
    else to[i] = Number(exact ? BigInt.asIntN(64, value as bigint) : value);
  }
}

function viewKind({
  kind,
  size,
}: DataType): (new (buffer: ArrayBufferLike, at: number, length: number) => Numbers) | undefined {
  switch (`${kind}${size}`) {
    case "i1":
      return Int8Array;
    case "u1":
    case "b1":
      return Uint8Array;
    case "i2":
      return Int16Array;
    case "u2":
      return Uint16Array;
    case "i4":
      return Int32Array;
    case "u4":
      return Uint32Array;
    case "i8":
      return BigInt64Array;
    case "u8":
      return BigUint64Array;
    case "f4":
      return Float32Array;
    case "f8":
      return Float64Array;
    default:
      return undefined;
  }
}

function view(data: Uint8Array, type: DataType): Numbers {
  return new (viewKind(type)!)(data.buffer, data.byteOffset, data.length / type.size);
}

function unshuffled(data: Uint8Array, size: number): Uint8Array {
  if (!(size > 1) || data.length % size !== 0) return data;
  const out = new Uint8Array(data.length);
  unshuffleBytes(data, out, size);
  return out;
}
