/**
 * Members of a tar archive: ustar, PAX, GNU long names, old V7, from bytes in memory.
 *
 * tar-stream (3.2) is not used: it hides where in the file a header and its data lie, which blocks are made of, brings 13 packages, and
 * takes a link's size for data behind it as it comes. A header is 512 bytes with fixed places.
 *
 * Contract: `readMember` looks at the member that begins at byte `at` and asks for more bytes until it has header and data. A header
 * whose checksum does not fit, or a number that is none, is an error; nothing is guessed.
 *
 * @example
 * const found = readMember(bytes, 0, where);
 * if ("need" in found) …            // so many bytes from `at` on
 * else console.log(found.name, found.size, found.next);
 */
import type { AthanorError, Where } from "../../base/errors.ts";
import { RecordCrc, RecordMalformed, RecordTooLong, Unsupported } from "../errors.ts";

export const TAR_BLOCK = 512;

export interface Member {
  name: string;
  /** A plain file: anything else (folders, links, devices, global headers) is no data. */
  file: boolean;
  /** Offsets in the bytes given: of the data, of the byte behind it, and of the next member. */
  data: number;
  end: number;
  next: number;
}

export type Found = Member | { need: number } | { endMark: true };

/** Long names and PAX records; a larger one is damage. */
const MAX_EXTENSION = 1024 * 1024;
const MAX_MEMBER = 2 ** 30;
const DAMAGED = "the archive is damaged: copy or write it again";

interface Extension {
  path?: string;
  size?: number;
}

/** `place`: where byte `at` lies, for errors. */
export function readMember(bytes: Uint8Array, at: number, place: (at: number) => Where): Found {
  const extension: Extension = {};
  for (let header = at; ;) {
    const need = (behind: number): { need: number } => ({ need: behind - at });
    if (header + TAR_BLOCK > bytes.length) return need(header + TAR_BLOCK);
    if (isZero(bytes, header)) {
      if (header === at) return { endMark: true };
      throw malformed("a long name or PAX record has no member behind it", place(header));
    }
    checkSum(bytes, header, place);
    const type = String.fromCharCode(bytes[header + 156]!);
    const data = header + TAR_BLOCK;
    const stored = number(bytes, header + 124, 12, "size", place(header));
    if (type === "x" || type === "X" || type === "g" || type === "L" || type === "K") {
      if (stored > MAX_EXTENSION) {
        throw malformed(
          `a header of type ${type} has ${stored} bytes, expected at most ${MAX_EXTENSION}`,
          place(header),
        );
      }
      const next = data + padded(stored);
      if (next > bytes.length) return need(next);
      const own = bytes.subarray(data, data + stored);
      if (type === "L") extension.path = cString(bytes, data, data + stored);
      else if (type !== "K") readPax(own, type === "g" ? undefined : extension, place(header));
      header = next;
      // A global header stands by itself.
      if (type === "g" && header === at + TAR_BLOCK + padded(stored)) {
        return { name: "", file: false, data, end: data + stored, next };
      }
      continue;
    }
    if (type === "S" || type === "M") {
      const what = type === "S" ? "sparse file" : "part of a file in several archives";
      throw new Unsupported(`a ${what}`, place(header), "write the archive without sparse or split files");
    }
    const file = type === "0" || type === "\0" || type === "7";
    // Links, folders and devices have no data, whatever their size says (POSIX; folders of old tars likewise).
    const size = type >= "1" && type <= "6" ? 0 : (extension.size ?? stored);
    if (size > MAX_MEMBER) {
      throw new RecordTooLong(`a member of ${size} bytes, at most ${MAX_MEMBER} are read`, place(header), "split it");
    }
    const next = data + padded(size);
    if (file && next > bytes.length) return need(next);
    const name = extension.path ?? headerName(bytes, header);
    // Old tars mark folders by a slash only.
    return { name, file: file && !name.endsWith("/"), data, end: data + size, next };
  }
}

/** Is this the header of a member? */
export function looksLikeTar(head: Uint8Array): boolean {
  if (head.length < TAR_BLOCK) return false;
  if (isZero(head, 0)) return false;
  const stored = octal(head, 148, 8);
  return stored !== undefined && isSum(head, 0, stored) && head[0] !== 0;
}

function checkSum(bytes: Uint8Array, at: number, place: (at: number) => Where): void {
  const stored = octal(bytes, at + 148, 8);
  if (isSum(bytes, at, stored)) return;
  throw new RecordCrc(
    `checksum of a tar header: found ${stored ?? "no number"}, computed ${sumOf(bytes, at)}`,
    place(at),
    DAMAGED,
  );
}

/** In one of both ways in which tars have summed bytes above 127. */
function isSum(bytes: Uint8Array, at: number, stored: number | undefined): boolean {
  const sum = sumOf(bytes, at);
  if (stored === sum) return true;
  let high = 0;
  for (let i = 0; i < TAR_BLOCK; i++) if (bytes[at + i]! > 127 && (i < 148 || i >= 156)) high++;
  return stored === sum - 256 * high;
}

/** Words of the memory that was summed last. */
let words: Uint32Array = new Uint32Array(0);

/** The checksum's own 8 bytes count as spaces. */
function sumOf(bytes: Uint8Array, at: number): number {
  let sum = 8 * 32;
  for (let i = at + 148; i < at + 156; i++) sum -= bytes[i]!;
  const place = bytes.byteOffset + at;
  if (place % 4 !== 0) {
    for (let i = at; i < at + TAR_BLOCK; i++) sum += bytes[i]!;
    return sum;
  }
  if (words.buffer !== bytes.buffer) words = new Uint32Array(bytes.buffer, 0, bytes.buffer.byteLength >>> 2);
  // Four bytes at a time, in two pairs of sums of 16 bits: 256 bytes do not fill one.
  let even = 0;
  let odd = 0;
  for (let i = place >>> 2; i < (place + TAR_BLOCK) >>> 2; i++) {
    const word = words[i]!;
    even += word & 0x00ff00ff;
    odd += (word >>> 8) & 0x00ff00ff;
  }
  return sum + (even & 0xffff) + (even >>> 16) + (odd & 0xffff) + (odd >>> 16);
}

function isZero(bytes: Uint8Array, at: number): boolean {
  for (let i = at; i < at + TAR_BLOCK; i++) if (bytes[i] !== 0) return false;
  return true;
}

export function padded(size: number): number {
  return Math.ceil(size / TAR_BLOCK) * TAR_BLOCK;
}

function number(bytes: Uint8Array, at: number, length: number, what: string, where: Where): number {
  // GNU: the highest bit, then a big-endian number.
  if (bytes[at] === 0x80) {
    let value = 0;
    for (let i = at + 1; i < at + length; i++) value = value * 256 + bytes[i]!;
    if (Number.isSafeInteger(value)) return value;
  }
  const value = octal(bytes, at, length);
  if (value === undefined) throw malformed(`the ${what} of a tar header is no number`, where);
  return value;
}

function octal(bytes: Uint8Array, at: number, length: number): number | undefined {
  // As nearly all are: digits up to a zero or a space.
  let value = 0;
  let i = at;
  for (; i < at + length && (bytes[i]! & 0xf8) === 0x30; i++) value = value * 8 + bytes[i]! - 0x30;
  if (i > at && (i === at + length || bytes[i] === 0)) return value;
  const text = Buffer.from(bytes.subarray(at, at + length)).toString("latin1");
  const digits = /^[ \0]*([0-7]*)[ \0]*(?:\0.*)?$/s.exec(text)?.[1];
  return digits === undefined ? undefined : Number.parseInt(digits === "" ? "0" : digits, 8);
}

function headerName(bytes: Uint8Array, at: number): string {
  const name = cString(bytes, at, at + 100);
  if (bytes[at + 345] === 0 || bytes[at + 257] !== 0x75) return name;
  const magic = cString(bytes, at + 257, at + 263);
  const prefix = magic === "ustar" ? cString(bytes, at + 345, at + 500) : "";
  return prefix === "" ? name : `${prefix}/${name}`;
}

/** UTF-8 of bytes [from, to), up to the first zero. */
function cString(bytes: Uint8Array, from: number, to: number): string {
  // Short ASCII one by one: a Buffer costs ten times as much.
  let text = "";
  for (let i = from; i < to && i < from + 256 && bytes[i]! < 128; i++) {
    if (bytes[i] === 0) return text;
    text += String.fromCharCode(bytes[i]!);
  }
  if (text.length === to - from) return text;
  const own = bytes.subarray(from, to);
  const end = own.indexOf(0);
  return Buffer.from(end < 0 ? own : own.subarray(0, end)).toString();
}

/** Records `LENGTH KEY=VALUE\n`; `extension` undefined: a global header, which may not say where members lie. */
function readPax(own: Uint8Array, extension: Extension | undefined, where: Where): void {
  for (let at = 0; at < own.length;) {
    if (own[at] === 0) return;
    const space = own.indexOf(0x20, at);
    const length = space < 0 ? Number.NaN : Number(Buffer.from(own.subarray(at, space)).toString("latin1"));
    const end = at + length;
    if (!Number.isInteger(length) || end > own.length || end < space + 2 || own[end - 1] !== 0x0a) {
      throw malformed("a PAX record whose length is wrong", where);
    }
    const record = Buffer.from(own.subarray(space + 1, end - 1)).toString();
    const equals = record.indexOf("=");
    if (equals < 0) throw malformed("a PAX record without a value", where);
    const key = record.slice(0, equals);
    const value = record.slice(equals + 1);
    at = end;
    if (key.startsWith("GNU.sparse.")) {
      throw new Unsupported("a sparse file", where, "write the archive without sparse files");
    }
    if (key !== "path" && key !== "size") continue;
    if (extension === undefined) {
      throw new Unsupported(`a global PAX header that sets ${key}`, where, "write the archive without it");
    }
    if (key === "path") extension.path = value;
    else {
      if (!/^\d+$/.test(value)) throw malformed("the size of a PAX record is no number", where);
      extension.size = Number(value);
    }
  }
}

function malformed(what: string, where: Where): AthanorError {
  return new RecordMalformed(what, where, DAMAGED);
}
