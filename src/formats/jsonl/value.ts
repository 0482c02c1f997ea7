/**
 * A record as values, for eyes: integers exact (bigint beyond 2^53), all that is nested as it is. Of a record that the parser has
 * found good.
 *
 * @example
 * readObject(Buffer.from('{"id":9007199254740993}'), 0); // { id: 9007199254740993n }
 */
import type { Value } from "../../base/json.ts";

interface Cursor {
  bytes: Buffer;
  at: number;
}

export function readObject(bytes: Buffer, at: number): { readonly [field: string]: Value } {
  return read({ bytes, at }) as { readonly [field: string]: Value };
}

function read(cursor: Cursor): Value {
  const { bytes } = cursor;
  space(cursor);
  const byte = bytes[cursor.at]!;
  if (byte === 0x7b) {
    const members: [string, Value][] = [];
    for (cursor.at++; !closes(cursor, 0x7d);) {
      const name = text(cursor);
      space(cursor);
      cursor.at++;
      members.push([name, read(cursor)]);
    }
    return Object.fromEntries(members);
  }
  if (byte === 0x5b) {
    const values: Value[] = [];
    for (cursor.at++; !closes(cursor, 0x5d);) values.push(read(cursor));
    return values;
  }
  if (byte === 0x22) return text(cursor);
  const from = cursor.at;
  let at = from;
  while (at < bytes.length && WORD[bytes[at]!] === 1) at++;
  cursor.at = at;
  const word = bytes.toString("latin1", from, at);
  if (word === "null") return null;
  if (word === "true" || word === "false") return word === "true";
  if (!/^-?\d+$/.test(word)) return Number(word);
  const number = Number(word);
  return Number.isSafeInteger(number) ? number + 0 : BigInt(word);
}

/** Passes over white space and a comma; also over the bracket if it closes here. */
function closes(cursor: Cursor, bracket: number): boolean {
  space(cursor);
  if (cursor.bytes[cursor.at] === 0x2c) {
    cursor.at++;
    space(cursor);
  }
  if (cursor.at < cursor.bytes.length && cursor.bytes[cursor.at] !== bracket) return false;
  cursor.at++;
  return true;
}

function space(cursor: Cursor): void {
  while (SPACE[cursor.bytes[cursor.at]!] === 1) cursor.at++;
}

function text(cursor: Cursor): string {
  const { bytes } = cursor;
  const from = cursor.at;
  let at = from + 1;
  while (bytes[at] !== 0x22) at += bytes[at] === 0x5c ? 2 : 1;
  cursor.at = at + 1;
  return (JSON.parse(bytes.toString("utf8", from, at + 1)) as string).toWellFormed();
}

/** Bytes of numbers and words. */
const WORD = table("+-.0123456789abcdefghijklmnopqrstuvwxyzE");
const SPACE = table(" \t\r\n");

function table(characters: string): Uint8Array {
  const bytes = new Uint8Array(256);
  for (const byte of Buffer.from(characters)) bytes[byte] = 1;
  return bytes;
}
