/** `athanor inspect PATH`: schema, counts, first samples, and how the data would be read. */
import type { Command } from "commander";
import { plainValue, valueJson } from "../base/json.ts";
import type { Value } from "../base/json.ts";
import { formatCount, formatNumber, formatSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { inspect } from "../dataset/inspect.ts";
import { nameOf } from "../dataset/set-name.ts";
import { textColumn } from "../dataset/text-column.ts";
import type { Inspection, ReadingPlan } from "../dataset/inspect.ts";
import type { Field } from "../formats/types.ts";
import { missingText, printLine, tableText, wantsJson, withProgress, withStorage } from "./command.ts";

interface Flags {
  indexDir?: string;
  samples: string;
}

export function register(program: Command): void {
  program
    .command("inspect")
    .description("schema, counts, first samples, and how the data would be read")
    .argument("<path>", "folder, file or glob of shards")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .option("--samples <n>", "records to show", "3")
    .action(async (path: string, flags: Flags, command: Command) => {
      const json = wantsJson(command);
      const samples = Number(flags.samples);
      if (!Number.isSafeInteger(samples) || samples < 0)
        throw new Usage(`--samples must be a whole number, got ${flags.samples}`);
      const inspection = await withStorage((storage) =>
        withProgress("reading", json, (progress) =>
          inspect(path, { storage, progress, samples, indexDir: flags.indexDir }),
        ),
      );
      await printLine(json ? JSON.stringify(asJson(inspection)) : asText(inspection));
    });
}

function asJson({ index, indexed, reading, samples }: Inspection): object {
  const { root, format, totals, schema, fingerprint, ignored, missing } = index;
  const meanTokens = totals.records === 0 ? 0 : totals.tokens / totals.records;
  return {
    root,
    format,
    indexed,
    totals,
    meanTokens,
    fingerprint,
    schema,
    text: textColumn(schema) ?? null,
    reading: reading ?? null,
    ignored,
    missingChunks: missing?.chunks ?? 0,
    samples: samples.map(plainValue),
  };
}

const LEFT_SHOWN = 20;

function asText({ index, indexed, reading, samples }: Inspection): string {
  const { format, totals, schema, fingerprint, ignored } = index;
  const lines = [
    `${nameOf(index)}: ${format}, ${formatNumber(totals.shards, "shard")}, ${formatSize(totals.bytes)}, ${formatNumber(totals.records, "record")}`,
    indexed ? `fingerprint ${fingerprint}` : `fingerprint ${fingerprint} (no index: scanned now)`,
    "",
    tableText([
      ["feature", "kind", "in records", "values each", "mean", "range"],
      ...schema.fields.map((field) => fieldRow(field)),
    ]),
    "",
  ];
  if (totals.records > 0) lines.push(`mean length: ${(totals.tokens / totals.records).toFixed(1)} tokens a record`, "");
  const text = textColumn(schema);
  if (text !== undefined) lines.push(`a tokenizer would read: ${text.holds} of ${shorten(text.name)}`, "");
  const left = Object.entries(schema.notColumns ?? {});
  // An object of thousands of keys is no reason to print thousands of lines.
  for (const [name, why] of left.slice(0, LEFT_SHOWN)) lines.push(`no column: ${shorten(name)} ${why}`);
  if (left.length > LEFT_SHOWN)
    lines.push(`… and ${formatNumber(left.length - LEFT_SHOWN, "field")} more that are no columns`);
  const outside = schema.fields.filter(({ unfit }) => unfit !== undefined);
  for (const { name, unfit } of outside.slice(0, LEFT_SHOWN))
    lines.push(
      `not delivered unless asked for: ${shorten(name)} (${formatNumber(unfit!.records, "record")} beyond int64): ${unfit!.first}`,
    );
  if (left.length + outside.length > 0) lines.push("");
  for (const values of samples) lines.push(shorten(valueJson(asWords(values))));
  if (samples.length > 0) lines.push("");
  lines.push(...(reading === undefined ? ["there are no records to read"] : readingLines(reading)));
  if (index.missing !== undefined) lines.push(missingText(index.missing));
  for (const { path, why } of ignored) lines.push(`ignored ${path}: ${why}`);
  return lines.join("\n");
}

function fieldRow(field: Field): string[] {
  const { name, kind, json, present, values, minLength, maxLength, min, max, prefixMask, list } = field;
  const known = minLength === maxLength ? `${maxLength}` : `${minLength} to ${maxLength}`;
  // Else it looks as if it came as one value a record.
  const lengths = known === "1" && list === true ? "1 (lists)" : known;
  const range = prefixMask === true ? "ones, then zeros" : min === undefined ? "" : `${min} to ${max}`;
  const mean = present === 0 ? "" : (values / present).toFixed(1);
  return [name, json === true ? "json" : kind, formatCount(present), lengths, mean, range];
}

function readingLines(plan: ReadingPlan): string[] {
  const shuffled =
    plan.shuffle === "global"
      ? "the whole set fits the shuffle memory of 1GiB: decoded once, shuffled over all samples"
      : `${formatNumber(plan.lanes, "lane")}, each shuffled in windows of ${formatNumber(plan.window, "sample")}`;
  const lines = [
    "how it would be read (default options, rows as long as the longest lists):",
    `  ${formatNumber(plan.blocks, "block")} of about ${formatSize(plan.blockBytes)}, in ${formatNumber(plan.extents, "extent")} of about ${formatSize(plan.extentBytes)}`,
    `  reads of about ${formatSize(plan.readBytes)}; ${shuffled}`,
  ];
  lines.push(
    plan.streams === 0
      ? "  no stream: any record can be read without what stands before its block"
      : `  compressed as one stream: ${formatNumber(plan.streams, "shard")}, each decoded from its beginning and one extent; resume inside one reads it again`,
  );
  return lines;
}

/** Bytes that are text, as text: for eyes only; `--json` and `cat` keep them as bytes. */
function asWords(value: Value): Value {
  if (value instanceof Uint8Array) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
    } catch {
      return value;
    }
  }
  if (Array.isArray(value)) return (value as readonly Value[]).map(asWords);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, asWords(member)]));
}

/** Samples of a line or two: enough to see what they are. */
function shorten(text: string): string {
  return text.length <= 200 ? text : `${text.slice(0, 197)}…`;
}
