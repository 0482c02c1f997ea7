/** `athanor doctor [PATH]`: what is wrong with this node, this mount, this pod. */
import type { Command } from "commander";
import { parseDuration } from "../base/units.ts";
import { Usage } from "../base/usage.ts";
import { diagnose } from "../doctor/diagnose.ts";
import { gather } from "../doctor/gather.ts";
import { diagnosisJson, diagnosisText, siteConfig } from "../doctor/text.ts";
import { printLine, wantsJson } from "./command.ts";

interface Flags {
  siteConfig?: boolean;
  targets?: boolean;
  loaderTimeout: string;
  timeout: string;
}

/** Usually it is done within a second. */
const SILENT_MS = 2000;

export function register(program: Command): void {
  program
    .command("doctor")
    .description("what is wrong with this node, this mount, this pod; exit code 1 when something is")
    .argument("[path]", "file or folder of the data (default: every distributed file system that is mounted)")
    .option("--site-config", "print lines for the site's configuration management instead; nothing is ever set")
    .option("--targets", "ask for the state of the OSTs here, also where rank 0 of the job does")
    .option("--loader-timeout <time>", "the `timeout` of the loader, held against the collective watchdog", "540s")
    .option("--timeout <time>", "how long one call may take before it is given up", "10s")
    .action(async (path: string | undefined, flags: Flags, command: Command) => {
      const json = wantsJson(command);
      if (json && flags.siteConfig === true)
        throw new Usage(
          "--site-config prints a text, not JSON",
          {},
          "`athanor doctor --json` has the same lines as `settings`",
        );
      const loaderTimeout = parseDuration(flags.loaderTimeout, "--loader-timeout");
      const timeoutMs = parseDuration(flags.timeout, "--timeout") * 1000;
      if (timeoutMs <= 0) throw new Usage("--timeout must be more than 0", {}, "10s is the default");
      const note = `asking the node and its file systems: a call that hangs is given up after ${flags.timeout}\n`;
      const timer = setTimeout(() => !json && process.stderr.write(note), SILENT_MS);
      const facts = await gather({ path, loaderTimeout, timeoutMs, always: flags.targets }).finally(() =>
        clearTimeout(timer),
      );
      const diagnosis = diagnose(facts);
      if (flags.siteConfig === true) return await printLine(siteConfig(diagnosis));
      if (diagnosis.wrong) process.exitCode = 1;
      await printLine(json ? JSON.stringify(diagnosisJson(diagnosis)) : diagnosisText(diagnosis));
    });
}
