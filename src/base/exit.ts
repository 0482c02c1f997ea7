/**
 * Exit at once, whatever the threads do. `process.exit` joins every worker thread, and a thread that reads a
 * lost Lustre target never returns (seen: the process stays until someone kills it).
 */
import { createRequire } from "node:module";

/**
 * Ends the process with `code` without waiting for threads. Flush what you have written before.
 * Without koffi (optional) the process kills itself, and the code seen outside is 137.
 */
export function exitNow(code: number): never {
  try {
    const koffi = createRequire(import.meta.url)("koffi") as {
      load(library: null): { func(signature: string): (code: number) => void };
    };
    koffi.load(null).func("void _exit(int)")(code);
  } catch {
    // koffi is optional; the signal below needs nothing.
  }
  process.kill(process.pid, "SIGKILL");
  throw new Error("unreachable: the process has killed itself");
}
