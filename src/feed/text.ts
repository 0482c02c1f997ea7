/**
 * Text: the text column of a block as token ids, so that rows are made of it as of stored ids. One document is one sample: cut to
 * what a row holds, with the tokens around it.
 *
 * @example
 * const text = await TextColumn.open(view.text);
 * const ids = text.tokenize(await format.columns(raw, [text.feature]), request, (i) => rows[i] !== 0);
 */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { AthanorError } from "../base/errors.ts";
import { canonicalJson } from "../base/json.ts";
import { RecordMalformed } from "../formats/errors.ts";
import type { BlockColumns, Column } from "../formats/types.ts";
import { openTokenizer } from "../tokenizer/open.ts";
import type { Around, CompiledTokenizer, Tokenizer } from "../tokenizer/types.ts";
import { chatHash, type ChatRequest, type ChatView } from "./chat-view.ts";

/** What a user asks for. */
export interface TextRequest {
  tokenizer: CompiledTokenizer;
  /** Undefined: `text`, else the only field of bytes. */
  column: string | undefined;
  /** Which end of a long document is cut off. */
  truncationSide: "left" | "right";
  around: Around;
  parseSpecial: boolean;
  /** What is made of conversations. */
  chat: ChatRequest;
}

/** The text column of a view; crosses threads. */
export interface TextView extends Omit<TextRequest, "column" | "chat"> {
  feature: string;
  maxLength: number;
  /** The column holds conversations. */
  chat?: ChatView;
  /** Documents are not cut: the view makes rows of pieces of them. @default false */
  whole?: boolean;
}

/** Hash of what makes ids of a text, for the view's fingerprint. */
export function tokenizerHash({ tokenizer, feature, truncationSide, around, parseSpecial, chat }: TextView): string {
  const spec = {
    around,
    column: feature,
    parse_special: parseSpecial,
    sha256: tokenizer.sha256,
    truncation: truncationSide,
    ...(chat === undefined ? {} : { chat: chatHash(chat) }),
  };
  return createHash("sha256").update(canonicalJson(spec)).digest("hex").slice(0, 32);
}

/** Records of a block, for messages. */
export interface BlockPlace {
  records: number;
  firstRecord: number;
  file: string;
}

export class TextColumn {
  readonly feature: string;
  private readonly tokenizer: Tokenizer;
  /** Infinity: texts are not cut. */
  private readonly maxLength: number;
  private readonly left: boolean;

  private constructor(view: TextView, tokenizer: Tokenizer) {
    this.feature = view.feature;
    this.tokenizer = tokenizer;
    this.maxLength = view.whole === true ? Infinity : view.maxLength;
    this.left = view.truncationSide === "left";
  }

  static async open(view: TextView): Promise<TextColumn> {
    const { around, parseSpecial } = view;
    return new TextColumn(view, await openTokenizer(view.tokenizer, { around, parseSpecial }));
  }

  /** The columns of a block with ids in place of the text; records that are not wanted have none. */
  tokenize(block: BlockColumns, place: BlockPlace, wanted: (i: number) => boolean): BlockColumns {
    const text = block.fields.get(this.feature);
    if (text === undefined) return block;
    const faults = new Map(block.faults);
    const { records } = place;
    const ends = new Uint32Array(records);
    const cut = new Uint8Array(records);
    let values = new Int32Array(Math.min(records * this.maxLength, 1 << 16));
    let length = 0;
    for (let i = 0; i < records; i++) {
      if (wanted(i) && !faults.has(i) && text.present?.[i] !== 0) {
        try {
          const { ids, own } = this.encode(stringOf(text, i), cut, i);
          const { before, behind } = this.tokenizer;
          const end = length + before.length + own + behind.length;
          if (end > values.length) {
            const more = new Int32Array(Math.max(values.length * 2, end));
            more.set(values);
            values = more;
          }
          values.set(before, length);
          values.set(ids, length + before.length);
          values.set(behind, end - behind.length);
          length = end;
        } catch (error) {
          faults.set(i, faultOf(error, place, i));
        }
      }
      ends[i] = length;
    }
    const fields = new Map(block.fields);
    fields.set(this.feature, { kind: "int64", values: values.subarray(0, length), ends, cut });
    return { fields, faults };
  }

  /** Ids of one text without those around it, until the next call. */
  private encode(text: string, cut: Uint8Array, i: number): { ids: Int32Array; own: number } {
    const { before, behind } = this.tokenizer;
    const room = this.maxLength - before.length - behind.length;
    const { ids, length } = this.tokenizer.encode(text, this.left ? Infinity : room);
    const own = Math.min(length, room);
    const from = this.left ? length - own : 0;
    if (own < length) cut[i] = 1;
    return { ids: ids.subarray(from, from + own), own };
  }
}

/** A text of a column of bytes. */
export function stringOf(column: Column, i: number): string {
  const bytes = column.values as Uint8Array;
  const from = i === 0 ? 0 : column.ends[i - 1]!;
  // A copy: the bytes may lie in memory that others write to.
  const own = Buffer.from(bytes.subarray(from, column.ends[i]));
  if (!isUtf8(own)) throw new RecordMalformed("the text is not UTF-8");
  return own.toString("utf8");
}

export function faultOf(error: unknown, { file, firstRecord }: BlockPlace, i: number): AthanorError {
  if (!(error instanceof AthanorError)) throw error;
  return AthanorError.fromRecord({ ...error.toRecord(), file, record: firstRecord + i });
}
