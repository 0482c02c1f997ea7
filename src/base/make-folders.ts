/**
 * Makes a folder and those above it that are missing, one by one, and says which ones it made. Node's recursive mkdir
 * runs for ever where mkdir answers ENOENT although the parent is there (/proc; seen with Node 20).
 *
 * @example
 * const made = await makeFolders("/d/.athanor/blocks"); // ["/d/.athanor", "/d/.athanor/blocks"]
 */
import { mkdir, rmdir, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";

/** From the outermost to the innermost. Errors are those of the file system (`code` EROFS, EACCES, ENOENT …). */
export async function makeFolders(path: string): Promise<string[]> {
  const missing: string[] = [];
  // Ends at the root at the latest, which is there.
  for (let folder = resolve(path); !(await isThere(folder)); folder = dirname(folder)) missing.unshift(folder);
  const made: string[] = [];
  for (const folder of missing) {
    try {
      await mkdir(folder);
      made.push(folder);
    } catch (error) {
      // Somebody else makes it at the same time.
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") {
        await removeEmpty(made);
        throw error;
      }
    }
  }
  return made;
}

/** Takes back what `makeFolders` made, as far as it is empty. */
export async function removeEmpty(made: readonly string[]): Promise<void> {
  for (const folder of made.toReversed()) await rmdir(folder).catch(() => undefined);
}

async function isThere(folder: string): Promise<boolean> {
  try {
    await stat(folder);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}
