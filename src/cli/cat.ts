/** `athanor cat PATH`: records as JSON lines, in file order, for eyes and for tests. */
import type { Command } from "commander";
import { valueJson } from "../base/json.ts";
import { Usage } from "../base/usage.ts";
import { readRecords } from "../dataset/records.ts";
import { printLine, tell, withStorage } from "./command.ts";

export function register(program: Command): void {
  program
    .command("cat")
    .description("print records as JSON lines in file order; what is readable before a fault is printed")
    .argument("<path>", "folder, file or glob of shards; needs no index")
    .option(
      "--records <A:B>",
      "records A (from 0) up to B (exclusive), counted over the whole set; either may be left out",
    )
    .action(async (path: string, flags: { records?: string }) => {
      const range = parseRange(flags.records ?? ":");
      await withStorage(async (storage) => {
        const onIgnored = (file: string, why: string): void => {
          tell(`ignored ${file}: ${why}`);
        };
        for await (const { values } of readRecords(path, { storage, onIgnored, ...range }))
          await printLine(valueJson(values));
      });
    });
}

function parseRange(text: string): { from: number; to: number } {
  const match = /^(\d*):(\d*)$/.exec(text);
  if (match === null)
    throw new Usage(`--records must be A:B, A: or :B with whole numbers, got ${JSON.stringify(text)}`);
  const from = match[1] === "" ? 0 : Number(match[1]);
  const to = match[2] === "" ? Number.POSITIVE_INFINITY : Number(match[2]);
  if (from > to) throw new Usage(`--records must be A:B with A ≤ B, got ${JSON.stringify(text)}`);
  return { from, to };
}
