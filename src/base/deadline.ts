/**
 * Deadline: work that is not trusted to end, on this thread.
 *
 * V8 ends whatever runs below a script of `node:vm` when its time is over; a loop of the work's own cannot stop that.
 *
 * @example
 * within(1000, () => template.render(values)); // throws DeadlinePassed after a second
 */
import { createContext, Script } from "node:vm";

export class DeadlinePassed extends Error {}

interface Sandbox {
  work: (() => unknown) | undefined;
}

const sandbox: Sandbox = { work: undefined };
const context = createContext(sandbox);
const script = new Script("work()");

export function within<Result>(milliseconds: number, work: () => Result): Result {
  sandbox.work = work;
  try {
    return script.runInContext(context, { timeout: milliseconds }) as Result;
  } catch (error) {
    if ((error as { code?: unknown } | null)?.code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
    throw new DeadlinePassed(`not done in ${milliseconds} ms`, { cause: error });
  } finally {
    sandbox.work = undefined;
  }
}
