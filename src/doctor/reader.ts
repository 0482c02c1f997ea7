/**
 * Reads files of /proc and /sys, and asks file systems for their space, in a process that may be left behind: statfs of a lost mount never
 * returns, and a driver in trouble keeps a reader of its sysfs files waiting. An answer is a line of JSON, printed as it comes, so that
 * what has no answer costs only itself.
 *
 * Called as `node reader.js '{"root": "/", "patterns": ["proc/self/limits"], "spaces": ["/dev/shm"]}'`.
 */
import { constants } from "node:fs";
import { access, lstat, readdir, readFile, realpath, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";

export interface Asked {
  /** Where `patterns` begin. */
  root: string;
  /** Paths without the leading slash; `*` stands for names. */
  patterns: readonly string[];
  /** Absolute. */
  spaces: readonly string[];
  /** Absolute: what lies there, and whether something may be made in it. */
  folder?: string | undefined;
}

export type Line =
  /** The path is about to be read: without a second line it has no answer. */
  | { begun: string }
  | { file: string; text: string | undefined }
  | { space: string; total: number; available: number }
  | { space: string; code: string }
  | ({ folder: string } & FolderAnswer);

export type FolderAnswer =
  | {
      /** Undefined: nothing lies there; what follows is of the folder above. */
      own: { folder: boolean; uid: number; mode: number } | undefined;
      /** Without symbolic links. */
      real: string;
      /** The errno that making something in it would end with. */
      denied?: string;
    }
  | { code: string };

/** Nothing that is looked at is larger. */
const LONGEST = 256 << 10;

// Before the first call: so many may hang without keeping the others waiting.
process.env["UV_THREADPOOL_SIZE"] = "32";
const print = (line: Line): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

async function expand(root: string, pattern: string): Promise<string[]> {
  const star = pattern.indexOf("*");
  if (star < 0) return [pattern];
  const before = pattern.slice(0, pattern.lastIndexOf("/", star) + 1);
  const [part] = pattern.slice(before.length).split("/");
  const rest = pattern.slice(before.length + part!.length);
  const shape = new RegExp(`^${part!.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*")}$`);
  const names = await readdir(join(root, before)).catch(() => []);
  const found = names.filter((name) => shape.test(name)).map((name) => expand(root, `${before}${name}${rest}`));
  return (await Promise.all(found)).flat();
}

async function readOne(root: string, file: string): Promise<void> {
  print({ begun: file });
  const text = await readFile(join(root, file), "utf8").catch(() => undefined);
  print({ file, text: text?.slice(0, LONGEST).trim() });
}

async function ask(space: string): Promise<void> {
  print({ begun: space });
  try {
    const { bsize, blocks, bavail } = await statfs(space);
    print({ space, total: blocks * bsize, available: bavail * bsize });
  } catch (error) {
    print({ space, code: (error as NodeJS.ErrnoException).code ?? "EIO" });
  }
}

async function look(folder: string): Promise<void> {
  print({ begun: folder });
  try {
    print({ folder, ...(await answerOf(folder)) });
  } catch (error) {
    print({ folder, code: (error as NodeJS.ErrnoException).code ?? "EIO" });
  }
}

async function answerOf(folder: string): Promise<FolderAnswer> {
  const found = await lstat(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  const place = found === undefined ? dirname(folder) : folder;
  const real = await realpath(place);
  const own = found && { folder: found.isDirectory(), uid: found.uid, mode: found.mode };
  try {
    await access(place, constants.W_OK | constants.X_OK);
    return { own, real };
  } catch (error) {
    return { own, real, denied: (error as NodeJS.ErrnoException).code ?? "EIO" };
  }
}

const { root, patterns, spaces, folder } = JSON.parse(process.argv[2] ?? "{}") as Asked;
await Promise.all([
  ...spaces.map(ask),
  ...(folder === undefined ? [] : [look(folder)]),
  ...patterns.map(async (pattern) => {
    const files = await expand(root, pattern);
    await Promise.all(files.map((file) => readOne(root, file)));
  }),
]);
