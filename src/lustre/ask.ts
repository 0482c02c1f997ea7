/**
 * Asks about files in bulk: xattrs, sizes. Node has no call for xattrs, so a Python process (which training needs anyway) makes the
 * calls, one after the other, with only the standard library. As little as possible is asked: a size costs Lustre a question to each
 * OST of the file, an xattr only one to the metadata server.
 *
 * Contract: no privilege needed; at most as many calls a second as `polite` allows of stats; a call that does not return costs `timeoutMs`, then its process is left
 * alone (it may not be possible to kill it), and the next file is asked by another one, three times at most. Nothing waits for a
 * process that was left. Every file gets an answer.
 *
 * @example
 * const answers = await askFiles([{ path: "/mnt/lustre/d/a", xattr: "lustre.lov" }]);
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { pythonCommand } from "../base/python.ts";
import { CALL_MS, abandon } from "../base/run-tool.ts";
import { Polite } from "../storage/polite.ts";

export interface Question {
  path: string;
  /** Undefined: size and kind are wanted. */
  xattr?: string;
}

export type Answer =
  | { value: Uint8Array }
  | { size: number; folder: boolean }
  /** `code`: the name of the errno; `ETIMEDOUT` with `hung`: it did not answer, or was not asked since others did not. */
  | { code: string; message: string; hung?: boolean };

export interface AskOptions {
  /** Milliseconds for one call. @default 10000 */
  timeoutMs?: number;
  /** Caps that all calls count for. @default those of `polite.ts`, for this call alone */
  polite?: Polite;
  /** @default $ATHANOR_PYTHON, else `python3` */
  python?: string;
  /** Why this file is not asked any more after `hung` did not answer; undefined: it is. */
  spare?: (question: Question, hung: readonly Question[]) => string | undefined;
}

const HANGS = 3;
/** For Python to start, from a file system that may be slow, too. Milliseconds. */
const START_MS = 60_000;

/** Undefined: there is no Python that runs. */
export async function askFiles(
  questions: readonly Question[],
  options: AskOptions = {},
): Promise<Answer[] | undefined> {
  const { timeoutMs = CALL_MS, polite = new Polite(), spare } = options;
  const python = options.python ?? pythonCommand();
  const answers: (Answer | undefined)[] = Array.from({ length: questions.length });
  const hung: Question[] = [];
  for (;;) {
    const open = questions.flatMap((question, i) => {
      if (answers[i] !== undefined) return [];
      const why = hung.length >= HANGS ? `${HANGS} files before it did not answer` : spare?.(question, hung);
      if (hung.length > 0 && why !== undefined) answers[i] = spared(why);
      return answers[i] === undefined ? [i] : [];
    });
    if (open.length === 0) return answers as Answer[];
    const told = await askOnce(
      open.map((i) => questions[i]!),
      { python, timeoutMs, polite },
    );
    for (const [k, answer] of told.answers.entries()) answers[open[k]!] = answer;
    if (told.answers.length === open.length) continue;
    if (told.ended && told.answers.length === 0 && hung.length === 0) return undefined;
    const silent = open[told.answers.length]!;
    hung.push(questions[silent]!);
    const message = told.ended ? "the process that asked ended" : `no answer for ${timeoutMs / 1000} s`;
    answers[silent] = { code: "ETIMEDOUT", message, hung: true };
  }
}

/** The answer of a file that is not asked. */
export const spared = (why: string): Answer => ({ code: "ETIMEDOUT", message: `not asked: ${why}`, hung: true });

/** Answers until all are there, one does not come, or the process ends. */
function askOnce(
  questions: readonly Question[],
  { python, timeoutMs, polite }: { python: string; timeoutMs: number; polite: Polite },
): Promise<{ answers: Answer[]; ended: boolean }> {
  return new Promise((resolve) => {
    const { atOnce, perSecond } = polite.pace("stats", questions.length) ?? { atOnce: 0, perSecond: Infinity };
    // The longest that it may wait for its own turn: for what is owed, and between two.
    const turnMs = (1000 * Math.max(1, 1 - atOnce)) / perSecond;
    const args = ["-I", "-S", "-c", SCRIPT, `${perSecond}/${atOnce}`];
    const child = spawn(python, args, { stdio: ["pipe", "pipe", "ignore"] });
    let ready = false;
    const answers: Answer[] = [];
    const lines = createInterface({ input: child.stdout });
    let timer: NodeJS.Timeout | undefined;
    const end = (ended: boolean): void => {
      clearTimeout(timer);
      lines.removeAllListeners();
      lines.close();
      abandon(child);
      resolve({ answers, ended });
    };
    const watch = (ms: number): void => {
      clearTimeout(timer);
      timer = setTimeout(() => end(!ready), ms);
    };
    lines.on("line", (line) => {
      if (!ready) {
        ready = true;
        return watch(timeoutMs + turnMs);
      }
      const answer = parseAnswer(line);
      if (answer === undefined) return end(true);
      answers.push(answer);
      if (answers.length === questions.length) end(false);
      else watch(timeoutMs + turnMs);
    });
    child.on("error", () => end(true));
    child.on("close", () => end(true));
    // Ended while questions were written: `close` tells it.
    child.stdin.on("error", () => undefined);
    watch(START_MS);
    child.stdin.end(questions.map((question) => `${JSON.stringify(question)}\n`).join(""));
  });
}

function parseAnswer(line: string): Answer | undefined {
  try {
    const answer = JSON.parse(line) as {
      value?: string;
      size?: number;
      folder?: boolean;
      code?: string;
      message?: string;
    };
    if (answer.value !== undefined) return { value: new Uint8Array(Buffer.from(answer.value, "base64")) };
    if (answer.size !== undefined) return { size: answer.size, folder: answer.folder === true };
    return { code: answer.code ?? "EIO", message: answer.message ?? "" };
  } catch {
    return undefined;
  }
}

/** Python 3.6 or later. Reads a question a line, prints an answer a line; `argv[1]`: calls a second, and how many at once before. */
const SCRIPT = `
import base64, errno, json, os, stat, sys, time
rate, at_once = map(float, sys.argv[1].split("/"))
print("ready", flush=True)
began = time.monotonic()
for number, line in enumerate(sys.stdin.buffer):
    time.sleep(max(0.0, began + max(0.0, number + 1 - at_once) / rate - time.monotonic()))
    question = json.loads(line.decode("utf-8"))
    try:
        if "xattr" in question:
            value = os.getxattr(question["path"], question["xattr"])
            answer = {"value": base64.b64encode(value).decode("ascii")}
        else:
            found = os.stat(question["path"])
            answer = {"size": found.st_size, "folder": stat.S_ISDIR(found.st_mode)}
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        answer = {"code": errno.errorcode.get(number, "EINVAL"), "message": str(getattr(error, "strerror", None) or error)}
    print(json.dumps(answer), flush=True)
`;
