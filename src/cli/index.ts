/** `athanor index PATH`: builds the index of a data set or brings it up to date. */
import { Command, Option } from "commander";
import { AthanorError } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { Usage } from "../base/usage.ts";
import { formatCount, formatNumber, formatSize } from "../base/units.ts";
import { adoptIndex } from "../dataset/index-adopt.ts";
import { buildIndex, type BuildOptions } from "../dataset/index-build.ts";
import { nameOf } from "../dataset/set-name.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import type { Storage } from "../storage/types.ts";
import { indexView } from "./index-view.ts";
import { addViewFlags, type ViewFlags } from "./view-flags.ts";
import { missingText, politeOption, printLine, tell, wantsJson, withProgress, withStorage } from "./command.ts";

interface Flags extends ViewFlags {
  view?: boolean;
  indexDir?: string;
  rebuild?: boolean;
  adopt?: boolean;
  strictChunks?: boolean;
  polite?: string;
  onCorrupt: "error" | "keep";
}

export function register(program: Command): void {
  const command = program
    .command("index")
    .description("build or refresh the index; unchanged shards are not read again")
    .argument("<path>", "folder, file or glob of shards")
    .option("--index-dir <dir>", "where the index goes when the data is read-only (default: .athanor beside the data)")
    .option("--rebuild", "read every shard again")
    .option("--strict-chunks", "arrays: a chunk that no file holds is an error (by default it reads as the fill value)")
    .option("--adopt", "the data is a copy with its index: check sizes and one record a shard instead of reading all")
    .addOption(
      new Option(
        "--on-corrupt <what>",
        "bad records: end with the first one, or keep all as records to be replaced later",
      )
        .choices(["error", "keep"])
        .default("error"),
    )
    .addOption(politeOption())
    .option(
      "--view",
      "count the tokens of every record too, for rows of sample_rule split or pack, with the flags below",
    );
  addViewFlags(command).action(async (path: string, flags: Flags, command: Command) => {
    const json = wantsJson(command);
    if (flags.adopt === true) refuseBesideAdopt(path, command);
    if (flags.view === true) return view(path, flags, json);
    refuseViewFlags(path, command);
    if (flags.adopt === true) return adopt(path, flags, json);
    const read: string[] = [];
    const bad: ErrorRecord[] = [];
    const keep = flags.onCorrupt === "keep";
    const index = await withStorage(
      (storage) =>
        build(path, flags, json, storage, {
          onRead: (shard) => read.push(shard),
          onBad: keep ? (fault) => bad.push(fault.toRecord()) : undefined,
        }),
      flags.polite,
    );
    const { root, format, totals, fingerprint, ignored, missing } = index;
    if (json) {
      await printLine(
        JSON.stringify({
          root,
          format,
          ...totals,
          fingerprint,
          read: read.length,
          ignored,
          missingChunks: missing?.chunks ?? 0,
          bad: bad.map(({ exit: _, ...fault }) => fault),
        }),
      );
      return;
    }
    for (const { path: file, why } of ignored) tell(`ignored ${file}: ${why}`);
    for (const fault of bad) tell(`bad ${AthanorError.fromRecord(fault).message} [${fault.code}]`);
    if (bad.length > 0) tell(`${formatNumber(bad.length, "bad record")} kept: train with on_corrupt="replace"`);
    await printLine(
      `${nameOf(index)}: ${format}, ${formatNumber(totals.shards, "shard")} (${formatCount(read.length)} read now), ` +
        `${formatNumber(totals.records, "record")}, ${formatNumber(totals.tokens, "token")}, ${formatSize(totals.bytes)}`,
    );
    if (missing !== undefined) await printLine(missingText(missing));
    await printLine(`fingerprint ${fingerprint}`);
  });
}

function build(
  path: string,
  { indexDir, rebuild, strictChunks }: Flags,
  json: boolean,
  storage: Storage,
  on: Pick<BuildOptions, "onRead" | "onBad">,
): Promise<DatasetIndex> {
  const flags = { indexDir, rebuild: rebuild === true, strictChunks: strictChunks === true };
  return withProgress("indexing", json, (progress) => buildIndex(path, { storage, progress, ...flags, ...on }));
}

/** Flags of a view decide nothing about the index itself: taken without a word, they would pass for done. */
function refuseViewFlags(path: string, command: Command): void {
  const own = addViewFlags(new Command()).options;
  const given = own.filter((option) => command.getOptionValueSource(option.attributeName()) === "cli");
  if (given.length === 0) return;
  throw new Usage(
    `${given.map(({ long }) => long).join(", ")} ${given.length === 1 ? "goes" : "go"} with --view`,
    { file: path },
    "add --view to count tokens, or leave it out: the index holds the data for all views",
  );
}

/** `--adopt` reads one record a shard and nothing more. */
function refuseBesideAdopt(path: string, command: Command): void {
  const other = ["view", "rebuild", "strictChunks", "onCorrupt"].filter(
    (name) => command.getOptionValueSource(name) === "cli",
  );
  if (other.length === 0) return;
  const names = command.options.filter((option) => other.includes(option.attributeName())).map(({ long }) => long);
  throw new Usage(
    `${names.join(", ")} beside --adopt would not be done`,
    { file: path },
    "run `athanor index PATH --adopt` first, then `athanor index PATH` with the other flags",
  );
}

async function view(path: string, flags: Flags, json: boolean): Promise<void> {
  await withStorage(async (storage) => {
    const index = await build(path, flags, json, storage, {
      // They are told of when their tokens are counted.
      onBad: flags.onCorrupt === "keep" ? () => undefined : undefined,
    });
    await indexView(
      path,
      index,
      { ...flags, again: flags.rebuild === true, keepBad: flags.onCorrupt === "keep" },
      storage,
      json,
    );
  }, flags.polite);
}

async function adopt(path: string, { indexDir, polite }: Flags, json: boolean): Promise<void> {
  const { index, adopted } = await withStorage(
    (storage) => withProgress("adopting", json, (progress) => adoptIndex(path, { storage, indexDir, progress })),
    polite,
  );
  const { root, totals, fingerprint } = index;
  await printLine(
    json
      ? JSON.stringify({ root, ...totals, fingerprint, adopted })
      : `${nameOf(index)}: ${formatCount(adopted)} of ${formatNumber(totals.shards, "shard")} adopted, a record of each checked\nfingerprint ${fingerprint}`,
  );
}
