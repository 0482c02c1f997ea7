/**
 * Warnings: what a loader should know of its data when it opens: fields that are left out, values and chunks that are not there.
 *
 * @example
 * warningsOf(group.view, true); // ["not delivered (numbers): valid"]
 */
import { formatNumber } from "../base/units.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import type { GroupView } from "../feed/group.ts";
import { DOCUMENTS_FEATURE } from "../feed/piece-columns.ts";

/** Fields that are no columns and are told of unasked. */
const SHOWN = 10;

/** `byDefault`: the columns were not named. */
export function warningsOf({ layout, sources }: GroupView, byDefault: boolean): string[] {
  const indexes = sources.flatMap((source) => source?.source.index ?? []);
  const scalars = new Set(layout.stored.filter(({ required }) => required).map(({ feature }) => feature));
  return [
    ...(byDefault ? leftOut(layout, indexes) : []),
    ...indexes.flatMap((index) => [
      ...withoutValues(index, scalars),
      ...beyondInt64(index, layout.stored),
      ...missingChunks(index),
    ]),
  ];
}

/** What is in the data and not in the batches. */
function leftOut({ columns }: GroupView["layout"], indexes: readonly DatasetIndex[]): string[] {
  const delivered = new Set(
    columns.flatMap(({ name, feature }) => (feature === DOCUMENTS_FEATURE ? [] : [name, feature])),
  );
  const left = indexes.flatMap(({ schema }) => schema.fields.filter(({ name }) => !delivered.has(name)));
  const outside = left.filter(({ unfit }) => unfit !== undefined).slice(0, SHOWN);
  const namesOf = (text: boolean): string[] => [
    ...new Set(
      left.filter(({ kind, unfit }) => (kind === "bytes") === text && unfit === undefined).map(({ name }) => name),
    ),
  ];
  // Named once each: whoever asks for one by columns= gets its reason.
  const unfit = [...new Map(indexes.flatMap(({ schema }) => Object.entries(schema.notColumns ?? {})))];
  const told = unfit.slice(0, SHOWN).map(([name, why]) => `${name} (${why})`);
  const more = unfit.length > SHOWN ? ["…"] : [];
  return [
    ...listed("not delivered (text or bytes)", namesOf(true)),
    ...listed("not delivered (numbers)", namesOf(false)),
    ...listed(
      "not delivered (numbers beyond int64)",
      outside.map(({ name, unfit }) => `${name} (${unfit!.first}; ${formatNumber(unfit!.records, "such record")})`),
    ),
    ...listed("fields that are no columns", [...told, ...more]),
  ];
}

function listed(what: string, names: readonly string[]): string[] {
  return names.length === 0 ? [] : [`${what}: ${names.join(", ")}`];
}

function withoutValues({ schema, totals }: DatasetIndex, scalars: ReadonlySet<string>): string[] {
  const { records } = totals;
  // Of a bad record nothing is known: its fields may all be there.
  const known = records - (schema.bad ?? 0);
  return schema.fields
    .map(({ name, present, unfit }) => ({ name, missing: known - present - (unfit?.records ?? 0) }))
    .filter(({ name, missing }) => scalars.has(name) && missing > 0)
    .map(
      ({ name, missing }) =>
        `column ${name} has no value in ${missing} of ${formatNumber(records, "record")}, which are bad ones (ATH_VALUE_MISSING)`,
    );
}

function beyondInt64({ schema, totals }: DatasetIndex, stored: GroupView["layout"]["stored"]): string[] {
  return schema.fields.flatMap(({ name, unfit }) =>
    unfit === undefined || !stored.some(({ feature }) => feature === name)
      ? []
      : `column ${name} has values beyond int64 in ${unfit.records} of ${formatNumber(totals.records, "record")}, which are bad ones (ATH_VALUE_RANGE): ${unfit.first}`,
  );
}

function missingChunks({ missing }: DatasetIndex): string[] {
  if (missing === undefined) return [];
  const { chunks, path, what } = missing;
  return [
    `chunks of arrays are missing and read as fill values: ${formatNumber(chunks, "chunk")}, the first ${path}: ${what}`,
  ];
}
