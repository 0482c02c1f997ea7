/** `athanor layout show|advise|apply PATH`: how files lie on the targets of a file system, and how they should. */
import { Option, type Command } from "commander";
import { USES } from "../lustre/advice.ts";
import { reportJson, reportText } from "../lustre/report-text.ts";
import type { LustreReport } from "../lustre/report.ts";
import { politeOption, printLine, wantsJson } from "./command.ts";
import { registerApply, reportOf } from "./layout-apply.ts";
import type { LayoutFlags } from "./layout-apply.ts";
import { whole } from "./order-flags.ts";

const forOption = (): Option =>
  new Option("--for <use>", "what the folder is for (otherwise told by the files)").choices(USES);

export function register(program: Command): void {
  const layout = program
    .command("layout")
    .description("how files lie on the targets of a file system, and how they should");
  const part = (name: string, description: string): Command =>
    layout
      .command(name)
      .description(description)
      .argument("<path>", "file or folder")
      .option("--limit <n>", "files that are looked at, chosen evenly", whole, 10_000)
      .option("--timeout <time>", "how long one call may take before it is given up", "10s")
      .addOption(politeOption());
  part("show", "striping, balance over the targets, and what is wrong with it").action(
    async (path: string, flags: LayoutFlags, command: Command) => {
      const report = await reportOf(path, flags, false, command);
      await printLine(wantsJson(command) ? JSON.stringify(reportJson(report)) : reportText(report));
    },
  );
  part(
    "advise",
    "what the striping should be, why, the line that changes it and its undo; exit code 1 when there is something to do",
  )
    .addOption(forOption())
    .option("--probe", "measure what several OSTs give: reads at most 256MiB of the files")
    .action(async (path: string, flags: LayoutFlags, command: Command) => {
      const report = await reportOf(path, flags, true, command);
      await printLine(wantsJson(command) ? JSON.stringify(reportJson(report)) : reportText(report));
      if (report.kind === "lustre" && hasWork(report)) process.exitCode = 1;
    });
  registerApply(
    part(
      "apply",
      "set the striping of a folder as `advise` says, for new files only, copy data into a folder that is set right, or move it; " +
        "without --apply it only says what it would do",
    ).addOption(forOption()),
  );
}

function hasWork({ findings, advice, moves }: LustreReport): boolean {
  return findings.length > 0 || advice?.fits === false || moves.length > 0;
}
