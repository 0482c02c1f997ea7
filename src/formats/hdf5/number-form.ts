/**
 * Number form: how the numbers of a dataset lie in their bytes. h5wasm tells their size only, and gives bytes as they are stored: a
 * bfloat16 would pass for a float16, an integer of 12 bits in two bytes would lose its sign.
 *
 * Read from the dataset's object header (HDF5 File Format Specification 3.0, IV.A), since the library's bindings have no call for it, and
 * jsfive, the one reader of it on npm, wants the whole file in memory.
 *
 * Contract: bounded, never throws. `undefined`: not found, as in a file that is damaged there, or keeps its types in a shared heap.
 *
 * @example
 * numberForm("/d/a.h5", address); // "plain": all bits of an integer, IEEE 754; "bfloat16"; "other"
 */
import { closeSync, openSync, readSync } from "node:fs";

export type NumberForm = "plain" | "bfloat16" | "other";

const SIGNATURE = Buffer.from("\x89HDF\r\n\x1a\n", "latin1");
const MOST_BLOCKS = 64;
const MOST_BYTES = 64 * 1024;
const DATATYPE = 3;
const CONTINUATION = 16;
const SHARED = 2;

/** `address`: of the object's header, as `create_object_reference` gives it. */
export function numberForm(path: string, address: bigint): NumberForm | undefined {
  let fd: number | undefined;
  try {
    fd = openSync(path, "r");
    return new Headers(fd).form(Number(address));
  } catch {
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

class Headers {
  private readonly fd: number;
  private readonly base: number;
  private readonly offsetBytes: number;

  constructor(fd: number) {
    this.fd = fd;
    let at = 0;
    for (let next = 512; !this.bytes(at, 8).equals(SIGNATURE); next *= 2) at = next;
    const head = this.bytes(at, 48);
    const version = head[8]!;
    this.offsetBytes = head[version < 2 ? 13 : 9]!;
    if (![2, 4, 8].includes(this.offsetBytes)) throw new RangeError("size of offsets");
    this.base = uint(head, version === 0 ? 24 : version === 1 ? 28 : 12, this.offsetBytes);
  }

  form(address: number, committed = false): NumberForm | undefined {
    for (const { type, flags, data } of this.messages(address)) {
      if (type !== DATATYPE) continue;
      if ((flags & SHARED) === 0) return formOf(data, 0);
      // Kind 1 lies in a heap of shared messages, the others in the header of a type that has a name.
      if (committed || data[1] === 1) return undefined;
      return this.form(uint(data, data[0] === 1 ? 8 : 2, this.offsetBytes), true);
    }
    return undefined;
  }

  private *messages(address: number): Generator<{ type: number; flags: number; data: Buffer }> {
    const first = this.bytes(this.base + address, 64);
    const second = first.toString("latin1", 0, 4) === "OHDR";
    const blocks: { from: number; to: number }[] = [];
    let order = 0;
    if (second) {
      const flags = first[5]!;
      const sizeAt = 6 + ((flags & 0x20) === 0 ? 0 : 16) + ((flags & 0x10) === 0 ? 0 : 4);
      const sizeBytes = 1 << (flags & 3);
      const from = address + sizeAt + sizeBytes;
      blocks.push({ from, to: from + uint(first, sizeAt, sizeBytes) });
      order = (flags & 4) === 0 ? 0 : 2;
    } else {
      if (first[0] !== 1) throw new RangeError("no object header");
      blocks.push({ from: address + 16, to: address + 16 + first.readUInt32LE(8) });
    }
    const head = second ? 4 + order : 8;
    for (let b = 0; b < blocks.length && b < MOST_BLOCKS; b++) {
      const { from, to } = blocks[b]!;
      const block = this.bytes(this.base + from, to - from);
      for (let at = 0; at + head <= block.length;) {
        const type = second ? block[at]! : block.readUInt16LE(at);
        const size = block.readUInt16LE(at + (second ? 1 : 2));
        const flags = block[at + (second ? 3 : 4)]!;
        const data = block.subarray(at + head, at + head + size);
        at += head + size;
        if (type === CONTINUATION) {
          const begin = uint(data, 0, this.offsetBytes);
          const end = begin + uint(data, this.offsetBytes, data.length - this.offsetBytes);
          // Version 2: between a signature and a checksum.
          blocks.push(second ? { from: begin + 4, to: end - 4 } : { from: begin, to: end });
        } else yield { type, flags, data };
      }
    }
  }

  private bytes(from: number, length: number): Buffer {
    if (!(length >= 0 && length <= MOST_BYTES)) throw new RangeError("length");
    const bytes = Buffer.alloc(length);
    const n = readSync(this.fd, bytes, 0, length, from);
    if (n === 0 && length > 0) throw new RangeError("behind the end of the file");
    return bytes.subarray(0, n);
  }
}

const CLASS = { integer: 0, float: 1, enum: 8, list: 9, array: 10 } as const;

/** Exponent, mantissa (place and bits each), bias, place of the sign. */
const IEEE: Readonly<Record<number, string>> = {
  2: "10 5 0 10 15 15",
  4: "23 8 0 23 127 31",
  8: "52 11 0 52 1023 63",
};
const BFLOAT16 = "7 8 0 7 127 15";
/** The first bit of the mantissa is 1 and not stored. */
const IMPLIED = 2;

/** Of a datatype message, or of what its lists or arrays hold. */
function formOf(message: Buffer, depth: number): NumberForm | undefined {
  if (depth > 4) return undefined;
  const type = message[0]! & 15;
  const version = message[0]! >> 4;
  const size = message.readUInt32LE(4);
  if (type === CLASS.enum || type === CLASS.list) return formOf(message.subarray(8), depth + 1);
  if (type === CLASS.array) {
    const dims = message[8]!;
    return formOf(message.subarray(version < 3 ? 12 + 8 * dims : 9 + 4 * dims), depth + 1);
  }
  if (type !== CLASS.integer && type !== CLASS.float) return undefined;
  const whole = message.readUInt16LE(8) === 0 && message.readUInt16LE(10) === 8 * size;
  if (type === CLASS.integer || !whole) return whole ? "plain" : "other";
  const parts = [...message.subarray(12, 16), message.readUInt32LE(16), message[2]!].join(" ");
  if (((message[1]! >> 4) & 3) !== IMPLIED) return "other";
  return parts === IEEE[size] ? "plain" : size === 2 && parts === BFLOAT16 ? "bfloat16" : "other";
}

function uint(bytes: Buffer, at: number, length: number): number {
  const value = length === 8 ? Number(bytes.readBigUInt64LE(at)) : bytes.readUIntLE(at, length);
  if (!Number.isSafeInteger(value)) throw new RangeError("address");
  return value;
}
