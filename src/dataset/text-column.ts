/**
 * Text column: which column of a data set a tokenizer is for, where the user names none.
 *
 * @example
 * textColumn(index.schema); // { name: "messages", holds: "conversations" }
 */
import type { Schema } from "../formats/types.ts";

/** `text`, else conversations in `messages`, else the only column of text. */
export function textColumn({ fields }: Schema): { name: string; holds: "text" | "conversations" } | undefined {
  const bytes = fields.filter(({ kind }) => kind === "bytes");
  const texts = bytes.filter(({ json }) => json !== true);
  if (texts.some(({ name }) => name === "text")) return { name: "text", holds: "text" };
  if (bytes.some(({ name }) => name === "messages")) return { name: "messages", holds: "conversations" };
  const [only] = texts;
  return texts.length === 1 ? { name: only!.name, holds: "text" } : undefined;
}
