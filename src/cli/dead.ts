/**
 * A process that is dead but for a thread in a call that hangs: its parent hears nothing of it until that call returns
 * (a shell has no prompt), and `ps` shows it as `Z`. So it has to be looked at.
 *
 * @example
 * const forget = whileDead(child.pid, () => process.exit(3));
 * child.once("exit", forget);
 */
import { readFileSync } from "node:fs";

/** Milliseconds between two looks. */
const LOOK_MS = 250;

/** Calls `tell` at every look at which `pid` is dead and was so at the one before: of one that ended just now the exit code is on the way. */
export function whileDead(pid: number, tell: () => void): () => void {
  let dead = false;
  const looks = setInterval(() => {
    const now = isDead(pid);
    if (now && dead) tell();
    dead = now;
  }, LOOK_MS);
  return () => clearInterval(looks);
}

/** Killed, and perhaps not gone. */
function isDead(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return "ZX".includes(stat[stat.lastIndexOf(")") + 2]!);
  } catch {
    return true;
  }
}
