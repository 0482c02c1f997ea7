/**
 * Footer: the metadata at the end of a Parquet file, checked, in plain numbers.
 *
 * ```
 * ┌ "PAR1" │ row groups … │ FileMetaData (thrift) │ u32 its length │ "PAR1" ┐
 * ```
 * hyparquet reads the thrift; nothing that it gives is believed before it was checked.
 *
 * @example
 * const { schema, groups, end } = await readFooter(object);
 */
import { parquetMetadata } from "hyparquet/src/metadata.js";
import type { ColumnChunk, FileMetaData } from "hyparquet/src/types.js";
import type { ReadableObject } from "../../storage/types.ts";
import { RecordMalformed, RecordTruncated, Unsupported } from "../errors.ts";
import { crc32c } from "../../base/crc32c.ts";
import { type Codec, codecNumber } from "./compress.ts";
import { type FileSchema, readSchema } from "./schema.ts";

/** One column of one row group, as the footer tells of it. */
export interface Chunk {
  /** Its first page: a dictionary, or data. */
  start: number;
  /** Behind its last page, by the footer. */
  end: number;
  values: number;
  codec: Codec;
}

export interface Group {
  rows: number;
  /** By leaf. */
  chunks: Chunk[];
}

export interface Footer {
  schema: FileSchema;
  groups: Group[];
  /** Where the metadata begins: no page reaches beyond. */
  end: number;
  crc32c: number;
}

const TAIL_BYTES = 8;
/** Of 1 TiB with 100 columns in groups of 100 MiB some 200 MiB; this is where a JavaScript heap ends. */
const MAX_FOOTER_BYTES = 512 * 1024 * 1024;
const COPY = "the file is damaged or was cut: copy it again";

export async function readFooter(object: ReadableObject): Promise<Footer> {
  const { uri: file, size } = object;
  if (size === 0)
    throw new RecordTruncated("the file is empty (0 bytes): no Parquet file", { file, byteOffset: 0 }, COPY);
  if (size < 4 + TAIL_BYTES) {
    throw new RecordTruncated(
      `the file of ${size} bytes is too small for Parquet (12 at least)`,
      { file, byteOffset: 0 },
      COPY,
    );
  }
  const tail = await read(object, size - TAIL_BYTES, TAIL_BYTES);
  const magic = Buffer.from(tail.subarray(4)).toString("latin1");
  const place = { file, byteOffset: size - TAIL_BYTES };
  if (magic === "PARE") {
    throw new Unsupported(
      "the footer is encrypted (PARE), which is not supported",
      place,
      "write the file without encryption",
    );
  }
  if (magic !== "PAR1") {
    throw new RecordTruncated(`no PAR1 at the end: the file is cut short (${size} bytes)`, place, COPY);
  }
  const length = new DataView(tail.buffer).getUint32(0, true);
  if (length > size - 4 - TAIL_BYTES) {
    throw new RecordMalformed(`footer length ${length} is larger than the file (${size} bytes)`, place, COPY);
  }
  const end = size - TAIL_BYTES - length;
  if (length > MAX_FOOTER_BYTES) {
    throw new Unsupported(
      `a footer of ${length} bytes`,
      { file, byteOffset: end },
      "write the file with fewer row groups",
    );
  }
  const bytes = await read(object, end, length + TAIL_BYTES);
  return { ...parseFooter(bytes, file, end), end, crc32c: crc32c(bytes) };
}

async function read(object: ReadableObject, offset: number, length: number): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length);
  const got = await object.readInto(bytes, offset);
  if (got === length) return bytes;
  throw new RecordTruncated(
    `the file ends after ${got} of ${length} bytes`,
    { file: object.uri, byteOffset: offset },
    COPY,
  );
}

function parseFooter(bytes: Uint8Array, file: string, end: number): Pick<Footer, "schema" | "groups"> {
  const where = { file, byteOffset: end };
  let metadata: FileMetaData;
  try {
    metadata = parquetMetadata(bytes, { geoparquet: false });
  } catch (error) {
    throw new RecordMalformed("damaged Parquet footer: its thrift cannot be read", where, COPY, error);
  }
  const fail = (what: string): never => {
    throw new RecordMalformed(`damaged Parquet footer: ${what}`, where, COPY);
  };
  const schema = readSchema(metadata.schema, file);
  const groups = metadata.row_groups.map(({ columns, num_rows }, g) => {
    const rows = toCount(num_rows) ?? fail(`row group ${g} has no number of rows`);
    if (!Array.isArray(columns) || (columns.length !== schema.leaves.length && rows > 0)) {
      fail(`row group ${g} has ${columns?.length} columns, its schema ${schema.leaves.length}`);
    }
    if (rows === 0) return { rows, chunks: [] };
    const chunks = columns.map((column, i) => {
      const leaf = schema.leaves[i]!;
      const name = `row group ${g}, column "${leaf.path}"`;
      const chunk = readChunk(column, end) ?? fail(`${name}: its offsets lie outside the file`);
      if (column.meta_data!.type !== leaf.type) fail(`${name}: holds ${column.meta_data!.type}, expected ${leaf.type}`);
      if (leaf.maxRep === 0 && chunk.values !== rows) fail(`${name}: ${chunk.values} values for ${rows} rows`);
      if (chunk.values < rows) fail(`${name}: ${chunk.values} values for ${rows} rows`);
      return chunk;
    });
    return { rows, chunks };
  });
  const encrypted = metadata.row_groups.some(({ columns }) => columns.some((column) => column.crypto_metadata));
  if (encrypted) {
    throw new Unsupported("columns are encrypted, which is not supported", where, "write the file without encryption");
  }
  // The footer's own sum of rows is 0 in files of some writers (parquet-testing has one): the groups count.
  return { schema, groups };
}

function readChunk({ file_path, meta_data }: ColumnChunk, end: number): Chunk | undefined {
  if (meta_data === undefined || file_path !== undefined) return undefined;
  const data = toCount(meta_data.data_page_offset);
  const dictionary = toCount(meta_data.dictionary_page_offset);
  const size = toCount(meta_data.total_compressed_size);
  const values = toCount(meta_data.num_values);
  if (data === undefined || size === undefined || values === undefined) return undefined;
  // Writers have left it out (polars), set it to 0, or behind the data; the first page says itself what it is.
  const start = dictionary !== undefined && dictionary >= 4 && dictionary < data ? dictionary : data;
  if (values > 0 && (start < 4 || start >= end)) return undefined;
  return { start, end: start + size, values, codec: codecNumber(meta_data.codec) };
}

/** A thrift integer as a count, if it is one. */
function toCount(value: unknown): number | undefined {
  const number = typeof value === "bigint" ? Number(value) : value;
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0 ? number : undefined;
}
