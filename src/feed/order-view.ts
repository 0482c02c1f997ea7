/** Views of indexes: what a batch holds, the fingerprint of each view, and what the order needs to know of it. */
import { join } from "node:path";
import { orderView } from "../dataset/extents.ts";
import { viewFingerprint } from "../dataset/fingerprint.ts";
import { pastSets } from "../dataset/past.ts";
import { pieceIndex, type PieceRows } from "../dataset/piece-index.ts";
import { isPieceRule, sampleIndex, sampleRule } from "../dataset/samples.ts";
import { SchemaMerge } from "../dataset/schema.ts";
import { nameOf } from "../dataset/set-name.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { RecordMalformed } from "../formats/errors.ts";
import type { Schema } from "../formats/types.ts";
import { OrderOption } from "../order/errors.ts";
import type { OrderView } from "../order/types.ts";
import type { Storage } from "../storage/types.ts";
import { viewLayout, withColumn } from "./columns.ts";
import type { ViewLayout } from "./columns.ts";
import { MASK, type ViewRequest } from "./delivered.ts";
import { ColumnUnknown, QuarantineQuota } from "./errors.ts";
import { countedTokens, type Counted } from "./counted.ts";
import { documentsColumn } from "./piece-columns.ts";
import { tokenizerHash } from "./text.ts";

/** Name of the one source in state and proof. */
export const SOURCE_NAME = "data";

export interface NamedIndex {
  name: string;
  index: DatasetIndex;
}

/** The view of an index, and the index in samples; `past`: of the sets that it was before shards were appended those that a state names, the newest first. */
export interface SourceViews {
  view: OrderView;
  index: DatasetIndex;
  past: { view: OrderView; index: DatasetIndex }[];
}

/** Makes what a view needs beside the index. */
export interface ViewMaker {
  /** Sees to it that the records of a set are counted. */
  count(index: DatasetIndex, counted: Counted): Promise<void>;
  /** Keeps the rows of a view beside the counts. Absent: they are made again each time. */
  keep?(index: DatasetIndex, name: string, parts: Uint8Array[]): Promise<void>;
}

/**
 * The views of the sources of one loader: their batches are alike. `known`: what a state has of them. `maker`: without one, what
 * is missing is an error. Throws ATH_COLUMN_UNKNOWN, ATH_SCHEMA_CONFLICT, ATH_SAMPLE_RULE, ATH_VIEW_MISSING,
 * and ATH_ORDER_OPTION where there are no records.
 */
export async function viewsOf(
  sources: readonly NamedIndex[],
  request: ViewRequest,
  storage: Storage,
  known: readonly { name: string; view: string }[] = [],
  maker?: ViewMaker,
): Promise<{ views: SourceViews[]; layout: ViewLayout }> {
  const rules = sources.map(({ index }) => sampleRule(index, request.sampleRule));
  // A rule that is named is the same for all sources.
  const pieces = rules.find(isPieceRule);
  const file = sources.map(({ index }) => nameOf(index)).join(", ");
  // Else a set without a record is told that it lacks columns, or a tokenizer.
  if (sources.every(({ index }) => index.totals.records === 0)) {
    throw new OrderOption("the data has 0 records", { file }, "check the path: `athanor inspect` shows what was found");
  }
  const layout = viewLayout(commonSchema(sources, request), request, file, pieces);
  let most = 0;
  const columns = layout.columns.map((column) => column.name);
  const { maxLength } = request;
  const tokenizer = layout.text === undefined ? null : tokenizerHash(layout.text);
  const views = await Promise.all(
    sources.map(async ({ name, index }, i) => {
      const rule = rules[i]!;
      const spec = { columns, max_length: maxLength, sample_rule: rule, tokenizer };
      const of = async (set: DatasetIndex): Promise<{ view: OrderView; index: DatasetIndex }> => {
        const fingerprint = viewFingerprint(set.fingerprint, spec);
        let samples: DatasetIndex;
        if (isPieceRule(rule)) {
          const counted = countedTokens(layout);
          await maker?.count(set, counted);
          const view = { fingerprint, tokens: counted.hash, rule, maxLength };
          const found = await pieceIndex(set, view, storage, maker?.keep?.bind(maker, set));
          refuseBad(set, found, request.mostBad ?? 0);
          samples = found.index;
          most = Math.max(most, found.most);
        } else {
          samples = await sampleIndex(set, rule, maxLength, storage);
        }
        return { view: await orderView(samples, fingerprint, layout.nominalBytes), index: samples };
      };
      const { view, index: samples } = await of(index);
      const wanted = new Set(known.flatMap((source) => (source.name === name ? [source.view] : [])));
      wanted.delete(view.fingerprint);
      const past: SourceViews["past"] = [];
      // Each set costs a microsecond a shard: those that no state asks for are left alone.
      if (wanted.size > 0) {
        for (const set of pastSets(index)) {
          if (wanted.delete(viewFingerprint(set.fingerprint, spec))) past.push(await of(set));
          if (wanted.size === 0) break;
        }
      }
      return { view, index: samples, past };
    }),
  );
  if (pieces !== "pack") return { views, layout };
  return { views, layout: withColumn(layout, documentsColumn(most), request.padId) };
}

export async function viewOf(
  index: DatasetIndex,
  request: ViewRequest,
  storage: Storage,
  maker?: ViewMaker,
): Promise<{ view: OrderView; index: DatasetIndex; layout: ViewLayout }> {
  const { views, layout } = await viewsOf([{ name: SOURCE_NAME, index }], request, storage, [], maker);
  return { view: views[0]!.view, index: views[0]!.index, layout };
}

/** Bad records are in no row of such a view: only for those who asked to go on without them. */
function refuseBad({ root }: DatasetIndex, { bad, firstBad }: PieceRows, most: number): void {
  if (firstBad === null || bad <= most) return;
  const where = { file: join(root, firstBad.path), record: firstBad.record };
  if (most > 0) {
    const remedy = "look at the data; raise corrupt_quota if that many bad records are expected";
    throw new QuarantineQuota(`${bad} bad records are left out, corrupt_quota is ${most}`, where, remedy);
  }
  throw new RecordMalformed(
    `${bad} bad records were left out when tokens were counted; the first is this one`,
    where,
    'set on_corrupt="replace" to train without them, or repair them and run `athanor index --view --rebuild`',
  );
}

/** The fields that every source has. One that is named and missing somewhere is refused. */
function commonSchema(sources: readonly NamedIndex[], { columns }: ViewRequest): Schema {
  const [first] = sources;
  if (sources.length === 1) return first!.index.schema;
  const merged = new SchemaMerge(first!.index.root);
  for (const { name, index } of sources) merged.add(name, index.schema);
  const fields = merged.result().fields.filter((field) => {
    const without = sources.find(({ index }) => !index.schema.fields.some(({ name }) => name === field.name));
    if (without === undefined) return true;
    if (columns?.includes(field.name) === true && field.name !== MASK) {
      throw new ColumnUnknown(
        `column ${field.name} is not in source ${without.name}`,
        { file: nameOf(without.index) },
        "all sources of a mixture deliver the same columns",
      );
    }
    return false;
  });
  const { notColumns } = merged.result();
  return notColumns === undefined ? { fields } : { fields, notColumns };
}
