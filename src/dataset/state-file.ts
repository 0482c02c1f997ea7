/**
 * State files: finds the loader's state in what a user names, and writes a changed one.
 *
 *   a file                 JSON of `state_dict()`
 *   a checkpoint's folder  its `loader_state.json` (examples/deepseek writes it beside DeepSpeed's files)
 *   a run's folder         that of the checkpoint that `latest` names
 *
 * torch's own files are never read: they are pickles, which run code when loaded.
 *
 * @example
 * const { state, file } = await readState("output/checkpoint-40");
 */
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { writeAtomic } from "../base/atomic-write.ts";
import { errnoName } from "../base/errno.ts";
import { messageOf } from "../base/errors.ts";
import { formatSize } from "../base/units.ts";
import { StateInvalid } from "../order/errors.ts";
import { parseState } from "../order/state.ts";
import type { OrderState } from "../order/types.ts";
import { noRoom } from "../storage/no-room.ts";
import { StateWrite } from "./errors.ts";

export interface StateFile {
  state: OrderState;
  /** The file it was found in. */
  file: string;
}

const STATE_NAME = "loader_state.json";
/** DeepSpeed's: holds the name of the newest checkpoint's folder. */
const LATEST_NAME = "latest";
/** Far above any state: a checkpoint's weights, named by mistake, are not read. */
const MOST_BYTES = 1024 * 1024;

/** Throws ATH_STATE_INVALID: nothing there, no state in it, or one of an unknown version. */
export async function readState(path: string): Promise<StateFile> {
  const found = (await textOf(path)) ?? (await textInside(path, STATE_NAME)) ?? (await newest(path));
  if (found === undefined) {
    throw new StateInvalid(
      `this folder holds no state: found neither ${STATE_NAME} nor ${LATEST_NAME}`,
      { file: path },
      `name a file with the JSON of state_dict(), a checkpoint with ${STATE_NAME} in it, or the folder of such a run`,
    );
  }
  return { state: parseState(found.text, found.file), file: found.file };
}

/** A temporary name, fsync, rename. Throws ATH_STATE_WRITE. */
export async function writeState(file: string, state: OrderState): Promise<void> {
  try {
    await writeAtomic(file, [Buffer.from(`${JSON.stringify(state)}\n`)]);
  } catch (error) {
    throw new StateWrite(
      `the state cannot be written: ${reason(error)}`,
      { file },
      noRoom(error, file) ?? "name a file in a folder that exists and can be written",
      error,
    );
  }
}

interface Text {
  text: string;
  file: string;
}

async function newest(run: string): Promise<Text | undefined> {
  const latest = await textInside(run, LATEST_NAME);
  if (latest === undefined) return undefined;
  const tag = latest.text.trim();
  // A name, never a way out of the run's folder.
  const isName = /^[^/\0]+$/.test(tag) && tag !== "..";
  const found = isName ? await textInside(join(run, tag), STATE_NAME) : undefined;
  if (found !== undefined) return found;
  throw new StateInvalid(
    `the newest checkpoint of this run (${JSON.stringify(tag.slice(0, 80))}) holds no ${STATE_NAME}`,
    { file: run },
    "write state_dict() as JSON beside the checkpoint's files, as examples/deepseek/checkpoint.py does",
  );
}

/** Undefined: the folder has no such file. */
async function textInside(folder: string, name: string): Promise<Text | undefined> {
  const file = join(folder, name);
  const isThere = await stat(file).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== "ENOENT",
  );
  return isThere ? await textOf(file) : undefined;
}

/** Undefined: the path is a folder. */
async function textOf(file: string): Promise<Text | undefined> {
  try {
    const found = await stat(file);
    if (found.isDirectory()) return undefined;
    if (found.isFile() && found.size <= MOST_BYTES) return { text: await readFile(file, "utf8"), file };
  } catch (error) {
    throw new StateInvalid(
      `the state cannot be read: ${reason(error)}`,
      { file },
      "check the path; name the JSON file that holds it, or the checkpoint's folder",
      error,
    );
  }
  throw new StateInvalid(
    `this is not the JSON of a state: found something else than a file of at most ${formatSize(MOST_BYTES)}`,
    { file },
    `name the JSON file, or the checkpoint's folder with ${STATE_NAME} in it`,
  );
}

function reason(error: unknown): string {
  const code = errnoName(error);
  if (code === "ENOENT") return "there is no such file or folder";
  if (code === "EACCES" || code === "EPERM") return "this user may not";
  return code ?? messageOf(error);
}
