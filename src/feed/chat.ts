/**
 * Chat: the messages of a block as token ids, and a mask of those that the assistant said, so that rows are made of them as of stored
 * lists. One conversation is one sample, cut to what a row holds.
 *
 * @example
 * const chat = new ChatColumn(view.text, view.text.chat);
 * chat.tokenize(block, request, (i) => rows[i] !== 0).fields.get("loss_mask");
 */
import { DeadlinePassed, within } from "../base/deadline.ts";
import { RecordMalformed } from "../formats/errors.ts";
import type { BlockColumns } from "../formats/types.ts";
import { openChat, Refused, type ChatTokenizer } from "../tokenizer/chat/open.ts";
import { ChatTemplate } from "../tokenizer/errors.ts";
import { LOSS_MASK, type ChatView } from "./chat-view.ts";
import { faultOf, stringOf, type BlockPlace, type TextView } from "./text.ts";

/** A template may take so long for one conversation, however often it is rendered: a thousand times what a long one needs. */
const RENDER_MS = 10_000;

export class ChatColumn {
  private readonly view: TextView;
  private readonly chat: ChatTokenizer;
  private readonly tools: string | undefined;
  private readonly template: string;
  /** Infinity: conversations are not cut. */
  private readonly maxLength: number;

  constructor(view: TextView, { spec, tools }: ChatView) {
    this.view = view;
    this.tools = tools;
    this.template = spec.name;
    this.maxLength = view.whole === true ? Infinity : view.maxLength;
    this.chat = this.bounded(() => openChat(view.tokenizer, spec, view.parseSpecial));
  }

  tokenize(block: BlockColumns, place: BlockPlace, wanted: (i: number) => boolean): BlockColumns {
    const { feature, truncationSide } = this.view;
    const { maxLength } = this;
    const left = truncationSide === "left";
    const messages = block.fields.get(feature);
    if (messages === undefined) return block;
    const tools = this.tools === undefined ? undefined : block.fields.get(this.tools);
    const faults = new Map(block.faults);
    const { records } = place;
    const ends = new Uint32Array(records);
    const cut = new Uint8Array(records);
    let values = new Int32Array(1 << 16);
    let mask = new Int32Array(values.length);
    let length = 0;
    for (let i = 0; i < records; i++) {
      if (wanted(i) && !faults.has(i) && messages.present?.[i] !== 0) {
        try {
          const conversation = stringOf(messages, i);
          const given = tools === undefined || tools.present?.[i] === 0 ? "" : stringOf(tools, i);
          const found =
            conversation === "" ? NOTHING : this.encode(conversation, given === "" ? undefined : given, left);
          const kept = Math.min(found.length, maxLength);
          if (kept < found.length) cut[i] = 1;
          if (length + kept > values.length) {
            const room = Math.max(values.length * 2, length + kept);
            values = grown(values, room);
            mask = grown(mask, room);
          }
          const from = left ? found.length - kept : 0;
          values.set(found.ids.subarray(from, from + kept), length);
          mask.set(found.marked.subarray(from, from + kept), length);
          length += kept;
        } catch (error) {
          faults.set(i, faultOf(error, place, i));
        }
      }
      ends[i] = length;
    }
    const fields = new Map(block.fields);
    fields.set(feature, { kind: "int64", values: values.subarray(0, length), ends, cut });
    fields.set(LOSS_MASK, { kind: "int64", values: mask.subarray(0, length), ends, cut });
    return { fields, faults };
  }

  private encode(messages: string, tools: string | undefined, whole: boolean): ReturnType<ChatTokenizer["encode"]> {
    return this.bounded(() => this.chat.encode(messages, tools, whole ? Infinity : this.maxLength));
  }

  private bounded<Result>(work: () => Result): Result {
    try {
      return within(RENDER_MS, work);
    } catch (error) {
      if (error instanceof DeadlinePassed) {
        throw new ChatTemplate(
          `the chat template ${this.template} was not done with a conversation in ${RENDER_MS / 1000} s`,
          {},
          "mend it, or give another one with chat_template=",
          error,
        );
      }
      if (error instanceof Refused) {
        throw new RecordMalformed(
          `the chat template ${this.template} does not take the conversation: ${error.message}`,
          {},
          "mend the record, leave it out, or pass over such records with on_corrupt",
          error,
        );
      }
      throw error;
    }
  }
}

const NOTHING = { ids: new Int32Array(0), marked: new Uint8Array(0), length: 0 };

function grown(values: Int32Array<ArrayBuffer>, room: number): Int32Array<ArrayBuffer> {
  const more = new Int32Array(room);
  more.set(values);
  return more;
}
