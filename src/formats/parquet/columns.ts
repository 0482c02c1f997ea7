/**
 * Columns of one block from the bytes that the feed has read: the dictionary (where the block needs it) and the pages of each
 * wanted field.
 *
 * @example
 * const { fields } = readColumns(raw, ["input_ids"]);
 */
import { workbench } from "../../kernels/workbench.ts";
import { RecordMalformed } from "../errors.ts";
import type { BlockColumns, PlacedSegment, RawBlock } from "../types.ts";
import { sliceRows, toColumn, type LeafRows } from "./block.ts";
import type { Codec } from "./compress.ts";
import { metaColumns, metaNested, skipOf } from "./meta.ts";
import { nestedColumn } from "./nested.ts";
import { checkCrc, malformed, type Page, type Place, readDictionary, readHead, readPage } from "./page.ts";
import type { Leaf } from "./schema.ts";
import type { Dense } from "./values.ts";

export function readColumns(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const { result, release } = workbench().lend(() => decode(raw, fields));
  return { ...result, release };
}

function decode(raw: RawBlock, fields: readonly string[]): BlockColumns {
  const block: BlockColumns = { fields: new Map(), faults: new Map() };
  const nested = new Map<string, { leaves: Leaf[]; slices: LeafRows[] }>();
  for (const [f, { leaf, ...field }] of metaColumns(raw.meta).entries()) {
    if (!fields.includes(field.name)) continue;
    const segments = raw.segments.filter((segment) => segment.field === f + 1);
    if (segments.length === 0) {
      const where = { file: raw.file, record: raw.firstRecord };
      throw new RecordMalformed(
        `the index names no pages of field ${JSON.stringify(field.name)}`,
        where,
        "run `athanor index` again",
      );
    }
    const { skip, codec } = skipOf(raw.meta, raw.block, f);
    const place: Place = {
      file: raw.file,
      column: `column "${leaf.path}"`,
      byteOffset: segments.at(-1)!.offset,
      record: raw.firstRecord,
    };
    const pages = readPages(segments, leaf, codec, skip + raw.records, place, raw.checkCrc);
    const rows = sliceRows(leaf, pages, skip, raw.records, place);
    if (field.json === true) {
      const { leaves, slices } = nested.get(field.name) ?? { leaves: [], slices: [] };
      nested.set(field.name, { leaves: [...leaves, leaf], slices: [...slices, rows] });
      continue;
    }
    const { column, faults } = toColumn({ ...field, leaf: 0 }, leaf, rows, place);
    block.fields.set(field.name, column);
    for (const [i, fault] of faults) if (!block.faults.has(i)) block.faults.set(i, fault);
  }
  for (const [name, { leaves, slices }] of nested) {
    block.fields.set(name, nestedColumn(metaNested(raw.meta, name), leaves, slices, raw.records));
  }
  return block;
}

/** All pages of the segments: they hold `rows` records, the last of them whole. */
function readPages(
  segments: readonly PlacedSegment[],
  leaf: Leaf,
  codec: Codec,
  rows: number,
  around: Place,
  check: boolean,
): Page[] {
  const pages: Page[] = [];
  let dictionary: Dense | undefined;
  let begun = 0;
  for (const { bytes, offset } of segments) {
    for (let at = 0; at < bytes.length;) {
      const place = { ...around, byteOffset: offset + at };
      const head = readHead(bytes, at, place);
      if (head === undefined) throw malformed("the page header is cut", place);
      const from = at + head.headBytes;
      at = from + head.bodyBytes;
      if (at > bytes.length)
        throw malformed(`a page of ${head.bodyBytes} bytes, ${bytes.length - from} are left`, place);
      const body = bytes.subarray(from, at);
      if (check) checkCrc(head, body, place);
      if (head.kind === "dictionary") dictionary = readDictionary(head, body, leaf, codec, place);
      if (head.kind !== "data") continue;
      const page = readPage(head, body, leaf, codec, dictionary, place);
      begun += page.rows;
      pages.push(page);
    }
  }
  if (begun < rows) throw malformed(`pages of ${begun} records, expected ${rows}`, around);
  return pages;
}
