// Tar archives for tests, header by header; NumPy arrays and zips for their members.
import { deflateRawSync } from "node:zlib";

export interface Entry {
  name: string;
  data?: Uint8Array | string;
  /** @default "0" */
  type?: string;
  /** Instead of the ustar prefix: a PAX record, or a GNU long name. */
  long?: "pax" | "gnu";
  /** Size as GNU's binary number. */
  binary?: boolean;
}

export function tar(entries: readonly Entry[], end = 1024): Buffer {
  return Buffer.concat([...entries.map(member), Buffer.alloc(end)]);
}

export function member({ name, data = "", type = "0", long, binary = false }: Entry): Buffer {
  const bytes = typeof data === "string" ? Buffer.from(data) : Buffer.from(data);
  if (long === "pax") return Buffer.concat([pax({ path: name }), member({ name: "cut", data: bytes, type, binary })]);
  if (long === "gnu") {
    return Buffer.concat([
      member({ name: "././@LongLink", data: `${name}\0`, type: "L" }),
      member({ name: "cut", data: bytes, type, binary }),
    ]);
  }
  const header = Buffer.alloc(512);
  header.write(name, 0, 100);
  header.write("0000644\0", 100);
  const size = bytes.length.toString(8).padStart(11, "0");
  if (binary) {
    header[124] = 0x80;
    header.writeUInt32BE(bytes.length, 132);
  } else header.write(`${size}\0`, 124);
  header.write(type, 156);
  header.write("ustar\x0000", 257);
  return Buffer.concat([summed(header), bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}

export function summed(header: Buffer): Buffer {
  header.fill(" ", 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

export function pax(records: Record<string, string>, type = "x"): Buffer {
  const text = Object.entries(records)
    .map(([key, value]) => {
      const rest = ` ${key}=${value}\n`;
      const bytes = Buffer.byteLength(rest);
      let length = bytes + String(bytes).length;
      if (bytes + String(length).length > length) length++;
      return `${length}${rest}`;
    })
    .join("");
  return member({ name: "PaxHeaders/x", data: text, type });
}

export function npy(descr: string, shape: readonly number[], data: Uint8Array, fortran = false): Buffer {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
  const header = `{'descr': '${descr}', 'fortran_order': ${fortran ? "True" : "False"}, 'shape': ${tuple}, }`;
  const padded = `${header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11)}\n`;
  const head = Buffer.from("\x93NUMPY\x01\x00\0\0", "latin1");
  head.writeUInt16LE(padded.length, 8);
  return Buffer.concat([head, Buffer.from(padded), data]);
}

export function zip(files: Record<string, Uint8Array>, deflate: boolean): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  for (const [name, data] of Object.entries(files)) {
    const body = deflate ? deflateRawSync(data) : Buffer.from(data);
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE(deflate ? 8 : 0, 4);
    // No CRC: nothing reads it.
    common.writeUInt32LE(body.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(name.length, 22);
    const entry = Buffer.concat([Buffer.from("PK\x01\x02\x14\0"), common, Buffer.alloc(14), Buffer.from(name)]);
    entry.writeUInt32LE(at, 42);
    directory.push(entry);
    parts.push(Buffer.from("PK\x03\x04"), common, Buffer.from(name), body);
    at += 30 + name.length + body.length;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06");
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, central, end]);
}
