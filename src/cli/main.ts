#!/usr/bin/env node
/**
 * `athanor`: parses the command line and hands over to one file a command.
 * Exit codes (design §4.8): 0 fine, 1 found problems, 2 usage, 3 environment, 4 a defect of ours. With `--json` a
 * command that fails prints one line `{"error": {…}}` on stderr.
 */
import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { toErrorRecord } from "../base/errors.ts";
import type { ErrorRecord } from "../base/errors.ts";
import { Usage } from "../base/usage.ts";
import { register as registerAgent } from "./agent.ts";
import { register as registerBench } from "./bench.ts";
import { register as registerCat } from "./cat.ts";
import { hasHungThreads, refuseEmptyWords, tell } from "./command.ts";
import { register as registerDemo } from "./demo.ts";
import { register as registerDoctor } from "./doctor.ts";
import { register as registerIndex } from "./index.ts";
import { register as registerInspect } from "./inspect.ts";
import { register as registerLayout } from "./layout.ts";
import { register as registerPlan } from "./plan.ts";
import { register as registerState } from "./state.ts";
import { register as registerVerify } from "./verify.ts";

const json = process.argv.includes("--json");
/** A keeper waits (keeper.ts): it is told the exit code, and without it nobody reads the results. */
const isKept = process.env["ATHANOR_KEPT"] !== undefined && process.connected;
delete process.env["ATHANOR_KEPT"];
if (isKept) {
  process.once("disconnect", () => process.kill(process.pid, "SIGKILL"));
  process.channel?.unref();
}

const program = new Command("athanor")
  .description("Keeps GPUs fed while large language models train")
  .version(version())
  .option("--json", "one JSON object on stdout; errors as one JSON line on stderr")
  .exitOverride()
  .configureOutput({ outputError: () => undefined })
  .showHelpAfterError(false)
  .hook("preAction", (_, command) => refuseEmptyWords(command));

// One line a command, in the order of `athanor --help`.
registerDemo(program);
registerIndex(program);
registerInspect(program);
registerVerify(program);
registerCat(program);
registerPlan(program);
registerLayout(program);
registerDoctor(program);
registerState(program);
registerAgent(program);
registerBench(program);

// `athanor cat … | head` closes the pipe; that is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  process.stderr.write(`athanor: the results cannot be written: ${error.message}\n`, () => process.exit(3));
});

end(await main());

async function main(): Promise<number> {
  try {
    await program.parseAsync();
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (error instanceof CommanderError) {
      // Help and version were printed already; commander calls them errors with exit code 0.
      if (error.exitCode === 0) return 0;
      if (error.code === "commander.help") return 2;
      return report(toErrorRecord(new Usage(error.message.replace(/^error: /, ""), {}, "see `athanor --help`")));
    }
    return report(toErrorRecord(error), error);
  }
}

function report(record: ErrorRecord, error?: unknown): number {
  const { exit, ...shown } = record;
  if (json) tell(JSON.stringify({ error: shown }));
  else if (exit === 4) tell(`athanor: ${record.message}\n${record.cause ?? ""}\n${record.remedy}`);
  else tell(`athanor: ${error instanceof Error ? error.message : record.message} [${record.code}]`);
  return exit ?? 1;
}

/**
 * Ends by itself when nothing runs any more. `process.exit` joins every thread, and one that reads a lost Lustre target
 * never returns (seen: the process stayed); then the only way out is a signal, and the keeper is told the code before.
 */
function end(code: number): void {
  process.exitCode = code;
  if (!hasHungThreads()) return;
  const die = (): void => void process.kill(process.pid, "SIGKILL");
  const leave = (): void =>
    void (isKept && process.connected ? process.send?.(code, undefined, undefined, die) : die());
  process.stdout.write("", () => process.stderr.write("", leave));
}

function version(): string {
  // dist/src/cli/main.js → the package's own folder.
  const file = new URL("../../../package.json", import.meta.url);
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
}
