/** `athanor index PATH`: builds the index of a data set or brings it up to date. */
import type { Command } from "commander";
import { formatCount, formatNumber, formatSize } from "../base/units.ts";
import { adoptIndex } from "../dataset/index-adopt.ts";
import { buildIndex } from "../dataset/index-build.ts";
import { printLine, wantsJson, withProgress, withStorage } from "./command.ts";

interface Flags {
  indexDir?: string;
  rebuild?: boolean;
  adopt?: boolean;
}

export function register(program: Command): void {
  program
    .command("index")
    .description("build or refresh the index; unchanged shards are not read again")
    .argument("<path>", "folder, file or glob of shards")
    .option("--index-dir <dir>", "where the index goes when the data is read-only (default: .athanor beside the data)")
    .option("--rebuild", "read every shard again")
    .option("--adopt", "the data is a copy with its index: check sizes and one record a shard instead of reading all")
    .action(async (path: string, flags: Flags, command: Command) => {
      const json = wantsJson(command);
      if (flags.adopt === true) return adopt(path, flags, json);
      const read: string[] = [];
      const index = await withStorage((storage) =>
        withProgress("indexing", json, (progress) =>
          buildIndex(path, {
            storage,
            progress,
            indexDir: flags.indexDir,
            rebuild: flags.rebuild === true,
            onRead: (shard) => read.push(shard),
          }),
        ),
      );
      const { root, format, totals, fingerprint, ignored } = index;
      if (json) {
        await printLine(JSON.stringify({ root, format, ...totals, fingerprint, read: read.length, ignored }));
        return;
      }
      for (const { path: file, why } of ignored) process.stderr.write(`ignored ${file}: ${why}\n`);
      await printLine(
        `${root}: ${format}, ${formatNumber(totals.shards, "shard")} (${formatCount(read.length)} read now), ` +
          `${formatNumber(totals.records, "record")}, ${formatNumber(totals.tokens, "token")}, ${formatSize(totals.bytes)}`,
      );
      await printLine(`fingerprint ${fingerprint}`);
    });
}

async function adopt(path: string, { indexDir }: Flags, json: boolean): Promise<void> {
  const { index, adopted } = await withStorage((storage) =>
    withProgress("adopting", json, (progress) => adoptIndex(path, { storage, indexDir, progress })),
  );
  const { root, totals, fingerprint } = index;
  await printLine(
    json
      ? JSON.stringify({ root, ...totals, fingerprint, adopted })
      : `${root}: ${formatCount(adopted)} of ${formatNumber(totals.shards, "shard")} adopted, a record of each checked\nfingerprint ${fingerprint}`,
  );
}
