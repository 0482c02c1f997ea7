/** `athanor index PATH --view`: counts the tokens of every record, once for all views of the tokenizer, and makes the rows of one. */
import { availableParallelism } from "node:os";
import type { AthanorError } from "../base/errors.ts";
import { formatCount, formatDuration, formatNumber, formatSize } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { damagedCounts, uncounted } from "../dataset/counts.ts";
import { isPieceRule, sampleRule } from "../dataset/samples.ts";
import { nameOf } from "../dataset/set-name.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import { ViewWriter, writeView } from "../dataset/view-write.ts";
import { countTokens } from "../feed/count.ts";
import { countSeconds, textBytes } from "../feed/count-estimate.ts";
import { viewOf } from "../feed/order-view.ts";
import { featuresOfText } from "../feed/token-column.ts";
import type { PosixStorage } from "../storage/posix.ts";
import { printLine, tell, withProgress } from "./command.ts";
import { viewRequest, type ViewFlags } from "./view-flags.ts";

export async function indexView(
  path: string,
  index: DatasetIndex,
  flags: ViewFlags & { again: boolean; keepBad: boolean },
  storage: PosixStorage,
  json: boolean,
): Promise<void> {
  const request = await viewRequest(flags, storage);
  const bad: AthanorError[] = [];
  const rule = sampleRule(index, request.sampleRule);
  if (!isPieceRule(rule)) {
    throw new Usage(
      `sample_rule "${rule}" needs no counts of tokens`,
      { file: path },
      "give --sample-rule split or pack with --view",
    );
  }
  const threads = availableParallelism();
  let shards = 0;
  let bytes = 0;
  let seconds = 0;
  const found = await withProgress("counting tokens", json, (progress) =>
    viewOf(index, request, storage, {
      count: async (set, counted) => {
        const { again } = flags;
        const damaged = again ? [] : await damagedCounts(set, counted.hash, storage);
        for (const shard of damaged) tell(`damaged counts of ${set.shards[shard]!.path}, counted again`);
        if (damaged.length > 0) {
          await new ViewWriter(set, counted.hash, path).remove(damaged);
          // A descriptor that is kept would go on with the damaged file.
          storage.forget();
        }
        const missing = again ? [...set.shards.keys()] : await uncounted(set, counted.hash, storage);
        bytes = missing.reduce((sum, shard) => sum + set.shards[shard]!.size, 0);
        if (missing.length > 0 && !json) {
          const known = counted.text && (await textBytes(set, missing, featuresOfText(counted.text)));
          tellBefore(missing.length, bytes, threads, known, counted.text?.chat !== undefined);
        }
        const start = performance.now();
        ({ shards } = await countTokens(set, counted, {
          storage,
          source: path,
          threads,
          progress,
          again,
          onBad: flags.keepBad ? (fault) => bad.push(fault) : undefined,
        }));
        seconds = (performance.now() - start) / 1000;
      },
      keep: (set, name, parts) => writeView(set, name, parts, path),
    }),
  );
  const { tokens, records: rows } = found.index.totals;
  const { records } = index.totals;
  const fill = rows === 0 ? 0 : tokens / (rows * request.maxLength);
  if (json) {
    const { fingerprint } = found.view;
    const facts = {
      root: index.root,
      view: fingerprint,
      rule,
      maxLength: request.maxLength,
      records,
      tokens,
      rows,
      fill,
    };
    await printLine(JSON.stringify({ ...facts, counted: shards, bytes, seconds, bad: bad.length }));
    return;
  }
  for (const { message, code } of bad) tell(`bad ${message} [${code}]`);
  if (bad.length > 0) tell(`${formatNumber(bad.length, "bad record")} in no row: train with on_corrupt="replace"`);
  await printLine(
    shards === 0
      ? `${nameOf(index)}: all shards were counted before`
      : `${nameOf(index)}: ${formatNumber(shards, "shard")} counted, ${formatSize(bytes)} in ${formatDuration(seconds)} (${formatSize(bytes / seconds)}/s)`,
  );
  await printLine(
    `${rule}, ${formatCount(request.maxLength)} tokens a row: ${formatNumber(records, "record")}, ${formatNumber(tokens, "token")}, ` +
      `${formatNumber(rows, "row")}, ${(fill * 100).toFixed(1)} % full`,
  );
  await printLine(`view ${found.view.fingerprint}`);
}

/** `text`: bytes of it; undefined: the tokens are stored, and only counted. */
function tellBefore(shards: number, bytes: number, threads: number, text: number | undefined, chat: boolean): void {
  const guess =
    text === undefined
      ? ""
      : ` with ${formatSize(text)} of text, about ${formatDuration(countSeconds(text, threads, chat))} with ${formatNumber(threads, "worker")}`;
  tell(`to count: ${formatNumber(shards, "shard")}, ${formatSize(bytes)}${guess}`);
}
