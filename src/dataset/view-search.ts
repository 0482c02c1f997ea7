/**
 * Which view of a set of tokens has a fingerprint: a state names its view by that alone, and how many samples there are and
 * which depends on `max_length` and the rule.
 *
 * @example
 * const samples = await samplesOfView(index, entry.view, storage); // the index in samples, or undefined
 */
import type { Storage } from "../storage/types.ts";
import { viewFingerprint } from "./fingerprint.ts";
import { keptView, pieceIndex } from "./piece-index.ts";
import { sampleIndex, sampleRules } from "./samples.ts";
import type { DatasetIndex, PieceSpec } from "./types.ts";

/** Lengths that are tried, some 2 µs each, unless one is named. */
const LONGEST = (1 << 17) + 1;
/** What can be delivered of tokens, the usual first. */
const COLUMNS = [["input_ids", "attention_mask"], ["input_ids"], ["attention_mask", "input_ids"], ["attention_mask"]];

/** Of records that are no tokens: the view of `pieces`, else that whose file has that name, else the index itself, whatever the fingerprint. */
export async function samplesOfView(
  index: DatasetIndex,
  fingerprint: string,
  storage: Storage,
  { maxLength, pieces }: { maxLength?: number | undefined; pieces?: PieceSpec | undefined } = {},
): Promise<DatasetIndex | undefined> {
  const rules = sampleRules(index);
  // Its file may be gone, or never was where the index cannot be written: the counts say the same.
  if (pieces !== undefined) return (await pieceIndex(index, { fingerprint, ...pieces }, storage)).index;
  if (rules.includes("record")) return (await keptView(index, fingerprint, storage)) ?? index;
  const [shortest, longest] = maxLength === undefined ? [1, LONGEST] : [maxLength, maxLength];
  for (const columns of COLUMNS) {
    for (const rule of rules) {
      for (let length = shortest; length <= longest; length++) {
        const spec = { columns, max_length: length, sample_rule: rule, tokenizer: null };
        if (viewFingerprint(index.fingerprint, spec) === fingerprint) {
          return sampleIndex(index, rule, length, storage);
        }
      }
    }
  }
  return undefined;
}
