/** `athanor agent`: the daemon in the foreground, for a sidecar that ranks with ATHANOR_AGENT=external wait for. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdirSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import { Usage } from "../base/usage.ts";
import { parsePolite } from "../storage/polite.ts";
import { politeOption } from "./command.ts";
import { whileDead } from "./dead.ts";

const agentJs = fileURLToPath(new URL("../../agent.js", import.meta.url));

export function register(program: Command): void {
  program
    .command("agent")
    .description("run the daemon here (clients start it by themselves unless ATHANOR_AGENT=external)")
    .option("--run-dir <folder>", "where clients look for it: their ATHANOR_RUN_DIR", process.env["ATHANOR_RUN_DIR"])
    .option("--job <id>", "name in the process list and the log", process.env["ATHANOR_JOB_ID"] ?? "external")
    .option("--grace <duration>", "leave this long after the last session, or `forever`", "forever")
    .option("--memory <size>", "bytes for rows and reads", process.env["ATHANOR_AGENT_MEMORY"])
    .option("--decode-threads <n>", "decode workers (half of the cores, at most 8)")
    .option("--io-threads <n>", "reads at a time", "4")
    .addOption(politeOption())
    .option("--no-crc", "do not check payload CRCs again while training")
    .action(run);
}

interface AgentFlags {
  runDir?: string;
  job: string;
  grace: string;
  memory?: string;
  decodeThreads?: string;
  ioThreads: string;
  polite?: string;
  crc: boolean;
}

async function run(flags: AgentFlags): Promise<void> {
  if (flags.runDir === undefined) {
    throw new Usage(
      "--run-dir is missing and ATHANOR_RUN_DIR is not set",
      {},
      "give the folder that the ranks' ATHANOR_RUN_DIR names",
    );
  }
  if (flags.polite !== undefined) parsePolite(flags.polite, "--polite");
  privateFolder(flags.runDir);
  const args = [
    agentJs,
    "--run-dir",
    flags.runDir,
    "--job",
    flags.job,
    "--grace",
    flags.grace,
    "--io-threads",
    flags.ioThreads,
  ];
  if (flags.memory !== undefined) args.push(`--memory=${flags.memory}`);
  if (flags.decodeThreads !== undefined) args.push(`--decode-threads=${flags.decodeThreads}`);
  if (flags.polite !== undefined) args.push(`--polite=${flags.polite}`);
  if (!flags.crc) args.push("--no-crc");
  const agent = spawn(process.execPath, args, { stdio: "inherit" });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => agent.kill(signal));
  const code = await ended(agent);
  if (code !== 0) process.exitCode = 3;
}

/** Its exit code. Of one that is dead but for a thread in a call that hangs, nothing tells until that call returns. */
function ended(agent: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    const settle = (code: number): void => {
      forget();
      agent.unref();
      resolve(code);
    };
    const forget = whileDead(agent.pid ?? 0, () => settle(3));
    agent.once("error", (error) => {
      forget();
      reject(error);
    });
    agent.once("exit", (status) => settle(status ?? 3));
  });
}

/** The folder of sockets is the user's alone: made so, or refused. */
function privateFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { uid, mode } = statSync(folder);
  if (uid !== process.getuid?.()) {
    throw new Usage("the run folder belongs to another user", { file: folder }, "choose one of your own");
  }
  if ((mode & 0o077) !== 0) {
    const found = (mode & 0o777).toString(8);
    throw new Usage(
      `the run folder is open to others: found mode ${found}, expected 700`,
      { file: folder },
      "choose a folder that does not exist yet, or chmod 700 one that is only for this",
    );
  }
}
