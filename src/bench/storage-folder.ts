/**
 * The folder of `bench storage`: made for this user only, removed on every way out: the end, an error, ^C, SIGTERM, the end of a session, and
 * by the process that made it also where this one is killed. Where the mount does not let it be removed, that process goes on trying for ten
 * minutes, and the error names it.
 *
 * @example
 * await withFolder("/mnt/lustre/d", crew, 60_000, async (folder) => …);
 */
import { AthanorError, toErrorRecord } from "../base/errors.ts";
import { Crew } from "./storage-crew.ts";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** `crew` is left before the folder goes: nothing may be made in it any more. */
export async function withFolder<Result>(
  parent: string,
  crew: Crew,
  timeoutMs: number,
  work: (folder: string) => Promise<Result>,
): Promise<Result> {
  const keeper = new Crew({ timeoutMs, targetOf: () => undefined });
  let signal: NodeJS.Signals | undefined;
  let stop: (reason: Error) => void = () => undefined;
  const stopped = new Promise<never>((_, reject) => (stop = reject));
  const onSignal = (name: NodeJS.Signals): void => {
    signal ??= name;
    stop(new Error(name));
  };
  try {
    const [made] = await keeper.run([{ do: "make", parent }]);
    const { folder } = made as { folder: string };
    // Until here nobody waits for `stopped`; a signal ends this process, and the keeper removes what it made.
    for (const name of SIGNALS) process.on(name, onSignal);
    let failed: unknown;
    try {
      return await Promise.race([work(folder), stopped]);
    } catch (error) {
      failed = error;
      throw error;
    } finally {
      crew.leave();
      await removed(folder, keeper, failed);
    }
  } finally {
    for (const name of SIGNALS) process.off(name, onSignal);
    keeper.leave({ gently: true });
    if (signal !== undefined) process.kill(process.pid, signal);
  }
}

/** An error of its own hides none of `failed`. */
async function removed(folder: string, keeper: Crew, failed: unknown): Promise<void> {
  try {
    await keeper.run([{ do: "remove", paths: [folder] }]);
  } catch (error) {
    const record = toErrorRecord(failed ?? error);
    const left = `${folder} could not be removed yet, and is tried again for 10 minutes`;
    throw AthanorError.fromRecord({
      ...record,
      remedy: record.remedy === undefined ? left : `${left}; ${record.remedy}`,
    });
  }
}
