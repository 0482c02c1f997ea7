/**
 * Open: a tokenizer of conversations, of one thread. The text of a conversation is cut into tokens once, as a whole; what the assistant
 * said is found among them by its place in the text.
 *
 * @example
 * const chat = openChat(compiled, spec, false);
 * const { ids, marked, length } = chat.encode('[{"role": "user", "content": "hi"}]', undefined, Infinity);
 */
import { ByteLevelTokenizer } from "../byte-level.ts";
import { TokenizerUnsupported } from "../errors.ts";
import type { ChatSpec, CompiledTokenizer, Encoded } from "../types.ts";
import { ChatRenderer } from "./conversation.ts";

export { Refused } from "./python.ts";

export interface ChatTokenizer {
  /** `marked`: 1 for tokens of the assistant. May stop as soon as there are more ids than `limit`. Overwritten by the next call. */
  encode(messages: string, tools: string | undefined, limit: number): Encoded & { marked: Uint8Array };
}

/** `parseSpecial`: tokens that are spelled out in what was said become themselves. */
export function openChat(compiled: CompiledTokenizer, spec: ChatSpec, parseSpecial: boolean): ChatTokenizer {
  if (compiled.kind !== "byte-level-bpe") {
    throw new TokenizerUnsupported(
      "conversations need a tokenizer of bytes (byte-level BPE): the library for other kinds does not tell which token stands for which text",
      { file: compiled.file },
      "apply the chat template with transformers before",
    );
  }
  const renderer = new ChatRenderer(spec, compiled.added, parseSpecial);
  // What the template writes are tokens; what people wrote has been told apart by then.
  const tokenizer = new ByteLevelTokenizer(
    compiled,
    { parseSpecial: true, around: "none" },
    { before: [], behind: [] },
  );
  return {
    encode(messages, tools, limit) {
      const { text, literal, spans } = renderer.render(messages, tools);
      return tokenizer.encodeSpans(text, literal, spans, limit);
    },
  };
}
