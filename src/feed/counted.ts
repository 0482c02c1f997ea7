/** Counted: which values of a record are its tokens, and what names their counts. */
import { createHash } from "node:crypto";
import { canonicalJson } from "../base/json.ts";
import type { ViewLayout } from "./columns.ts";
import { tokenizerHash, type TextView } from "./text.ts";

export interface Counted {
  /** 32 hex digits: of what makes tokens of a record, whatever the rule and `max_length`. */
  hash: string;
  feature: string;
  /** Undefined: the values of the feature are the tokens. */
  text: TextView | undefined;
}

export function countedTokens({ tokens: feature = "", text }: ViewLayout): Counted {
  // Which end would be cut off does not matter: nothing is.
  const spec = text === undefined ? { ids: feature } : { text: tokenizerHash({ ...text, truncationSide: "right" }) };
  const hash = createHash("sha256").update(canonicalJson(spec)).digest("hex").slice(0, 32);
  return { hash, feature, text };
}
