/**
 * Files that are JSON, but hold no records as we read them: seen at the first record, and named once.
 *
 * @example
 * wrongShape("lines", "a.jsonl", found, keys, bytes, true)?.what; // "record spans several lines (indented JSON), …"
 */
import type { Where } from "../../base/errors.ts";
import type { FoundRecords, Layout } from "./decode.ts";
import { Keys } from "./keys.ts";
import { Malformed, RecordParser } from "./parser.ts";

export interface WrongShape {
  what: string;
  where: Where;
  remedy: string;
}

/** Names under which a single object holds the records of a set. */
const WRAPPERS = new Set(["data", "rows", "records", "examples", "items", "samples", "instances"]);

/** `rest`: the bytes from the first record on, as far as they are known; `whole`: they are all, and one block. */
export function wrongShape(
  layout: Layout,
  path: string,
  found: FoundRecords,
  keys: Keys,
  rest: Buffer,
  whole: boolean,
): WrongShape | undefined {
  const fault = found.faults.get(0);
  const where: Where = { record: 0, ...fault?.where };
  if (fault !== undefined) {
    if (layout === "array" && rest[0] !== 0x7b) {
      return {
        what: "the elements of the JSON array are no objects",
        where,
        remedy: 'write each record as an object, such as {"input_ids": [1, 2, 3]}',
      };
    }
    if (layout === "lines" && spansLines(rest)) {
      return {
        what: "a record spans several lines (indented JSON): JSON Lines have one record a line",
        where,
        remedy: "write each record on a line of its own (jq -c .), or all of them as one JSON array",
      };
    }
    return undefined;
  }
  if (layout === "lines" && whole && found.begins.length === 1 && /\.json$/i.test(path)) {
    const lists = [...keys.fields.values()].filter(({ json, text, n }) => json && n > 0 && text[0] === 0x5b);
    const wrapper = lists.find(({ name }) => WRAPPERS.has(name)) ?? (keys.fields.size === 1 ? lists[0] : undefined);
    if (wrapper !== undefined && !CHATS.has(wrapper.name)) {
      return {
        what: `one object that holds the records in ${JSON.stringify(wrapper.name)}`,
        where: { record: 0, line: 1, byteOffset: 0 },
        remedy: `write the list alone: jq .${wrapper.name}`,
      };
    }
  }
  return undefined;
}

/** Lists of objects that are one record: the turns of a chat. */
const CHATS = new Set(["messages", "conversations", "conversation", "turns", "dialog"]);

/** The record goes on behind its line, as an object that is laid out over several. */
function spansLines(rest: Buffer): boolean {
  const newline = rest.indexOf(0x0a);
  const line = newline < 0 ? rest.length : newline;
  return endsEarly(rest, line, false) && !endsEarlyAt(rest, line);
}

/** Parsing [0, end) fails at its very end. */
function endsEarly(bytes: Buffer, end: number, newlines: boolean): boolean {
  const parser = new RecordParser(Keys.of([]), newlines);
  parser.open(bytes);
  try {
    parser.parse(0, end, 0);
  } catch (error) {
    return error instanceof Malformed && parser.at >= end;
  }
  return false;
}

/** With line ends as white space the record gets no further than the line. */
function endsEarlyAt(bytes: Buffer, line: number): boolean {
  const parser = new RecordParser(Keys.of([]), true);
  parser.open(bytes);
  try {
    parser.parse(0, bytes.length, 0);
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
  }
  let at = line;
  while (at < bytes.length && (bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x20 || bytes[at] === 0x09))
    at++;
  return parser.at <= at;
}
