/** Errors of tokenizers. */
import { defineError } from "../base/errors.ts";

/** The tokenizer's files are missing, no JSON, or not what a `tokenizer.json` is. */
export const TokenizerUnreadable = defineError("ATH_TOKENIZER_UNREADABLE", 1);
/** A tokenizer that does what we do not: its ids could differ from those that the model was made with. */
export const TokenizerUnsupported = defineError("ATH_TOKENIZER_UNSUPPORTED", 1);
/** A run of a text without a word border that the regular expressions cannot hold: millions of characters. */
export const TextRunTooLong = defineError("ATH_TEXT_RUN_TOO_LONG", 1);
/** A chat template that is missing, cannot be read, or does not tell what the assistant said. */
export const ChatTemplate = defineError("ATH_CHAT_TEMPLATE", 1);
