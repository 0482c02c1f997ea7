/** `athanor state show|diff|verify|skip|from-consumed`: the loader's state in words, and what can be done with it. */
import { InvalidArgumentError, type Command } from "commander";
import { readState } from "../dataset/state-file.ts";
import { verifyRun } from "../dataset/verify-run.ts";
import { StateMismatch } from "../order/errors.ts";
import { checkReport } from "../order/proof-files.ts";
import type { PositionRange } from "../order/proof-files.ts";
import { compareStates } from "../order/state-diff.ts";
import { whole } from "./order-flags.ts";
import { printLine, wantsJson, withStorage } from "./command.ts";
import { registerFromConsumed } from "./state-from-consumed.ts";
import { registerSkip } from "./state-skip.ts";
import { diffText, reportText, stateText } from "./state-text.ts";

const STATE = "JSON of state_dict(), a checkpoint's folder with loader_state.json, or a run's folder";

interface VerifyFlags {
  data: string[];
  state?: string;
  indexDir?: string;
  ledger?: string;
  skipped: PositionRange[];
  maxLength?: number;
  otherData?: boolean;
}

export function register(program: Command): void {
  const state = program.command("state").description("the loader's state and its proof");
  state
    .command("show")
    .description("a state in words")
    .argument("<state>", STATE)
    .action(async (path: string, _flags: object, command: Command) => {
      const { state: found } = await readState(path);
      await printLine(wantsJson(command) ? JSON.stringify(found) : stateText(found));
    });
  state
    .command("diff")
    .description("what two states differ in, and whether B may be loaded where A was (exit code 1: no)")
    .argument("<A>", STATE)
    .argument("<B>", "the same")
    .action(async (pathA: string, pathB: string, _flags: object, command: Command) => {
      const diff = compareStates((await readState(pathA)).state, (await readState(pathB)).state);
      await printLine(wantsJson(command) ? JSON.stringify(diff) : diffText(diff));
      if (diff.verdict !== "refused") return;
      const refused = diff.differences.filter((difference) => difference.refused);
      throw new StateMismatch(
        `the second state may not be loaded where the first was: they differ in ${refused.map(({ what }) => what).join(", ")}`,
        { file: pathB },
        "load it with the data, seed and optimizer batch of the run that wrote it",
      );
    });
  state
    .command("verify")
    .description("recompute the proof of a run from the index and name the first step that differs")
    .argument("<run>", "the run's folder (with proof/), or the folder of the proof files")
    .requiredOption(
      "--data <path>",
      "the data that the run was trained on, as the loader was given it; of a mixture NAME=PATH for each source",
      (text: string, before: string[] | undefined) => [...(before ?? []), text],
    )
    .option("--state <state>", "a state of the run (default: the one in the proof files)")
    .option("--index-dir <dir>", "where the index lies when the data is read-only")
    .option("--ledger <dir>", "folder of the ledger of replaced records (default: that of the proof files)")
    .option("--max-length <n>", "of samples cut out of tokens, where it is above 131073", whole)
    .option("--other-data", "also compare with data of another fingerprint: compressed anew, or repaired")
    .option("--skipped <from:to>", "positions that `state skip` left out; may be given again", range, [])
    .action(async (run: string, flags: VerifyFlags, command: Command) => {
      const given = flags.state === undefined ? undefined : (await readState(flags.state)).state;
      const { report, proof } = await withStorage((storage) =>
        verifyRun(run, dataOf(flags.data), {
          storage,
          indexDir: flags.indexDir,
          state: given,
          ledger: flags.ledger,
          skipped: flags.skipped,
          maxLength: flags.maxLength,
          otherData: flags.otherData,
        }),
      );
      await printLine(
        wantsJson(command) ? JSON.stringify({ ...report, tornLines: proof.tornLines }) : reportText(report, proof),
      );
      checkReport(report);
    });
  registerSkip(state, STATE);
  registerFromConsumed(state);
}

/** One path, or paths by name. */
function dataOf(given: readonly string[]): string | Map<string, string> {
  const named = given.map((text) => /^([^=/]+)=(.+)$/.exec(text));
  if (given.length === 1 && named[0] === null) return given[0]!;
  const paths = new Map<string, string>();
  for (const [i, found] of named.entries()) {
    if (found === null)
      throw new InvalidArgumentError(`--data must be NAME=PATH where there are several, got ${given[i]}`);
    paths.set(found[1]!, found[2]!);
  }
  return paths;
}

function range(text: string, before: PositionRange[]): PositionRange[] {
  const [, from, to] = /^(\d+):(\d+)$/.exec(text) ?? [];
  if (from === undefined || to === undefined || !(Number(from) < Number(to)))
    throw new InvalidArgumentError("must be FROM:TO, two positions, the second one not included.");
  return [...before, { from: Number(from), to: Number(to) }];
}
