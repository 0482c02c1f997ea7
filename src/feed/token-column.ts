/**
 * Token column: makes token ids of the column that a view tokenizes, of texts or of conversations.
 *
 * @example
 * const column = await openTokenColumn(view.text);
 * column.tokenize(await format.columns(raw, featuresOf(stored, view.text)), request, (i) => rows[i] !== 0);
 */
import type { BlockColumns, StoredColumn } from "../formats/types.ts";
import { ChatColumn } from "./chat.ts";
import { LOSS_MASK } from "./chat-view.ts";
import { TextColumn, type BlockPlace, type TextView } from "./text.ts";

/** Features that token ids are made of. */
export function featuresOfText({ feature, chat }: TextView): string[] {
  return chat?.tools === undefined ? [feature] : [feature, chat.tools];
}

/** Features that the stored columns are made of. */
export function featuresOf(stored: readonly StoredColumn[], text: TextView | undefined): string[] {
  const features = new Set(stored.map(({ feature }) => feature));
  if (text?.chat !== undefined) {
    features.delete(LOSS_MASK);
    for (const feature of featuresOfText(text)) features.add(feature);
  }
  return [...features];
}

/** Makes ids of the text of blocks. */
export interface TokenColumn {
  tokenize(block: BlockColumns, place: BlockPlace, wanted: (i: number) => boolean): BlockColumns;
}

export async function openTokenColumn(view: TextView): Promise<TokenColumn> {
  return view.chat === undefined ? await TextColumn.open(view) : new ChatColumn(view, view.chat);
}
