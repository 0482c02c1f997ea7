/**
 * The daemon: options, signals and the end of the process.
 *
 *   node agent.js --run-dir DIR --job JOB [--grace 10s] [--memory 4GiB] [--decode-threads N] [--io-threads N] [--no-crc]
 *                 [--polite off|opens=…,stats=…,restores=…] [--alone 30s]: until a rank hears that others of its node have not come
 */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { toErrorRecord } from "../base/errors.ts";
import { parseDuration, parseSize } from "../base/units.ts";
import { VERSION } from "../base/version.ts";
import { handlesFor } from "../storage/handles.ts";
import { Polite, capsHere } from "../storage/polite.ts";
import { Server } from "./server.ts";

let leaving = false;

export async function main(): Promise<void> {
  try {
    await start();
  } catch (error) {
    // The log's end is what the rank that started us shows its user: one line, not a stack.
    const { code, message, remedy, cause } = toErrorRecord(error);
    process.stderr.write(
      `${code} ${message}${remedy === undefined ? "" : ` (${remedy})`}${code === "ATH_INTERNAL" ? `\n${cause ?? ""}` : ""}\n`,
    );
    process.exit(3);
  }
}

async function start(): Promise<void> {
  const { values } = parseArgs({
    options: {
      "run-dir": { type: "string" },
      job: { type: "string", default: "local" },
      grace: { type: "string", default: "10s" },
      memory: { type: "string" },
      "decode-threads": { type: "string" },
      "io-threads": { type: "string", default: "4" },
      alone: { type: "string", default: "30s" },
      polite: { type: "string" },
      "no-crc": { type: "boolean", default: false },
    },
  });
  const runDir = values["run-dir"];
  if (runDir === undefined) throw new Error("--run-dir is missing");
  process.umask(0o077);
  process.title = `athanor-agent ${values.job}`;
  const server: Server = new Server({
    runDir,
    job: values.job,
    version: VERSION,
    graceMs: values.grace === "forever" ? Number.POSITIVE_INFINITY : parseDuration(values.grace) * 1000,
    memory: values.memory === undefined ? defaultMemory() : parseSize(values.memory),
    decodeThreads: values["decode-threads"] === undefined ? defaultDecodeThreads() : Number(values["decode-threads"]),
    ioThreads: Number(values["io-threads"]),
    handles: handlesFor(descriptorLimit()),
    aloneMs: parseDuration(values.alone) * 1000,
    polite: new Polite(capsHere(values.polite)),
    checkCrc: !values["no-crc"],
    leave: () => void leave(server, "no session left"),
  });
  process.on("SIGTERM", () => void leave(server, "SIGTERM"));
  process.on("SIGINT", () => void leave(server, "SIGINT"));
  process.on("SIGHUP", () => undefined);
  process.on("uncaughtException", (error) => {
    server.warn(`internal error: ${JSON.stringify(toErrorRecord(error))}`);
    void leave(server, "internal error");
  });
  await server.listen();
  server.log(`agent ${VERSION} (pid ${process.pid}) of job ${values.job} is ready`);
}

/**
 * `process.exit` joins every thread, and one that hangs in a call on a lost target would keep it for ever: then the
 * process ends itself the hard way.
 */
async function leave(server: Server, why: string): Promise<void> {
  if (leaving) return;
  leaving = true;
  server.log(`agent leaves: ${why}`);
  if (await server.close().catch(() => false)) process.exit(0);
  process.kill(process.pid, "SIGKILL");
}

/** Node raises its own to the hard limit. */
function descriptorLimit(): number {
  const found = /^Max open files +(\d+|unlimited)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1];
  return found === "unlimited" ? Infinity : Number(found ?? 0);
}

/** Half of what the machine, or the container if it allows less, has free. */
function defaultMemory(): number {
  return Math.floor(process.availableMemory() / 2);
}

/** Half of the cores: the other half trains. One decodes some 300,000 samples of 512 tokens a second. */
function defaultDecodeThreads(): number {
  return Math.max(2, Math.min(8, Math.floor(availableParallelism() / 2)));
}
