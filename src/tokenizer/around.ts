/**
 * Around: which tokens stand before and behind a text: those of the post-processor of `tokenizer.json`, or the BOS and EOS tokens that
 * `tokenizer_config.json` names.
 */
import { TokenizerUnsupported } from "./errors.ts";
import type { Around, Part } from "./types.ts";

/** Ids before and behind a text. */
export interface Ends {
  before: readonly number[];
  behind: readonly number[];
}

/** `tokens`: what `tokenizer_config.json` names; each may be missing. */
export function aroundOf(
  postProcessor: Part | null,
  tokens: { bos: number | undefined; eos: number | undefined },
): Partial<Record<Around, Ends>> {
  const { bos, eos } = tokens;
  return {
    none: { before: [], behind: [] },
    template: templateOf(postProcessor),
    ...(bos === undefined ? {} : { bos: { before: [bos], behind: [] } }),
    ...(eos === undefined ? {} : { eos: { before: [], behind: [eos] } }),
    ...(bos === undefined || eos === undefined ? {} : { both: { before: [bos], behind: [eos] } }),
  };
}

function templateOf(part: Part | null): Ends {
  if (part === null) return { before: [], behind: [] };
  switch (part.type) {
    case "ByteLevel":
      return { before: [], behind: [] };
    case "Sequence":
      return (part["processors"] as Part[])
        .map((inner) => templateOf(inner))
        .reduce(
          (sum, { before, behind }) => ({ before: [...before, ...sum.before], behind: [...sum.behind, ...behind] }),
          { before: [], behind: [] },
        );
    case "BertProcessing":
    case "RobertaProcessing":
      return { before: [idOf(part["cls"])], behind: [idOf(part["sep"])] };
    case "TemplateProcessing":
      return template(part);
    default:
      throw new TokenizerUnsupported(
        `the post-processor ${part.type} is not one that is read`,
        {},
        "set add_special_tokens=False",
      );
  }
}

interface Piece {
  Sequence?: { id: string };
  SpecialToken?: { id: string };
}

function template(part: Part): Ends {
  const special = part["special_tokens"] as Record<string, { ids: number[] }>;
  const ends = { before: [] as number[], behind: [] as number[] };
  let side = ends.before;
  for (const { Sequence, SpecialToken } of part["single"] as Piece[]) {
    if (Sequence !== undefined) side = ends.behind;
    else side.push(...(special[SpecialToken!.id]?.ids ?? []));
  }
  return ends;
}

/** `["[SEP]", 102]` */
function idOf(pair: unknown): number {
  return (pair as [string, number])[1];
}
