/**
 * Discover: which files a source names. A source is a folder (all plain files below it), one file, a Zarr folder, or a glob
 * (`*`, `?`, `[a-z]`, `{a,b}`, `**` for any folders). Hidden names, `.athanor` among them, are left out.
 * Looks at names only; which of the files are shards is decided by their content (`index-build.ts`).
 *
 * @example
 * await discover("/d/train_*.tfrecord", storage); // { root: "/d", paths: ["train_000.tfrecord", …], … }
 */
import { createHash } from "node:crypto";
import { basename, dirname, join, relative, resolve } from "node:path";
import { groupFiles, partnerOf } from "../formats/groups.ts";
import { ifThere } from "../storage/errors.ts";
import { FOLDER_MARKS } from "../storage/types.ts";
import type { Storage } from "../storage/types.ts";
import { NoShards, SourceUnsupported } from "./errors.ts";
import { isUnfinished } from "./non-data.ts";

export interface Discovered {
  /** Absolute folder that `paths` are relative to: the one given, for a glob the longest common one. */
  root: string;
  /** Where the index of exactly this set of files belongs. */
  indexDir: string;
  /** Of the shards, in byte order. */
  paths: string[];
  /** The other files of shards that are more than one. */
  beside: ReadonlyMap<string, readonly string[]>;
}

const INDEX_FOLDER = ".athanor";

/** Throws ATH_NO_SHARDS, ATH_NOT_FOUND, ATH_SOURCE_UNSUPPORTED (`s3://…` until that storage is there). */
export async function discover(source: string, storage: Storage, indexDir?: string): Promise<Discovered> {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(source)?.[1];
  if (scheme !== undefined) {
    throw new SourceUnsupported(
      `${scheme}:// cannot be read yet, only paths of mounted file systems`,
      { file: source },
      "give a path, or copy the data to a mounted file system",
    );
  }
  const path = resolve(source);
  const { root, paths: named } = besideShard(await files(source, path, storage));
  const paths = root === path ? named : await withPartners(root, named, storage);
  const fallback = root === path ? join(root, INDEX_FOLDER) : join(root, INDEX_FOLDER, "sets", setName(root, path));
  const folder = indexDir === undefined ? fallback : resolve(indexDir);
  // An index folder inside the data whose name is not hidden.
  const inside = relative(root, folder);
  const outside = paths.filter((name) => inside === "" || !name.startsWith(`${inside}/`));
  if (outside.length === 0) {
    throw new NoShards("no files found", { file: source }, "give a folder, file or glob that holds shards");
  }
  const groups = groupFiles(outside);
  const beside = new Map(groups.filter((group) => group.beside.length > 0).map((group) => [group.path, group.beside]));
  return { root, indexDir: folder, paths: groups.map((group) => group.path), beside };
}

/** A root that is itself a shard is named from the folder above it. */
function besideShard(found: { root: string; paths: string[] }): { root: string; paths: string[] } {
  const { root, paths } = found;
  if (!paths.some((path) => FOLDER_MARKS.includes(path))) return found;
  return { root: dirname(root), paths: paths.map((path) => `${basename(root)}/${path}`) };
}

async function files(source: string, path: string, storage: Storage): Promise<{ root: string; paths: string[] }> {
  // A path that exists is never taken for a glob, whatever characters are in its name.
  const kind = await kindOf(path, storage);
  if (kind === "folder") {
    return { root: path, paths: (await storage.names(path)).filter((name) => !isUnfinished(name)) };
  }
  // Metadata of Zarr stand for their folder.
  if (kind === "file" && FOLDER_MARKS.includes(basename(path))) return files(source, dirname(path), storage);
  if (kind === "file") return { root: dirname(path), paths: [basename(path)] };
  const parts = path.split("/");
  const first = parts.findIndex((part) => /[*?[{]/.test(part));
  if (first < 0) await storage.stat(path); // Throws: there is no such file.
  const prefix = parts.slice(0, first).join("/") || "/";
  const glob = parts.slice(first).join("/");
  // Only what the glob can match is looked at: a broken link or a forbidden folder beside it is no fault of the set.
  const names = await storage.names(prefix, { files: globPattern(glob), folders: folderPattern(glob) });
  if (names.length === 0) throw new NoShards("the glob matches no file", { file: source }, "check the pattern");
  const common = commonFolder(names);
  return {
    root: join(prefix, common),
    paths: common === "" ? names : names.map((name) => name.slice(common.length + 1)),
  };
}

/** Of a pair that a file or a glob names half of, the other file, too. */
async function withPartners(root: string, paths: readonly string[], storage: Storage): Promise<string[]> {
  const present = new Set(paths);
  for (const path of paths) {
    const partner = partnerOf(path);
    if (partner === undefined || present.has(partner)) continue;
    if ((await kindOf(join(root, partner), storage)) === "file") present.add(partner);
  }
  return [...present].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

async function kindOf(path: string, storage: Storage): Promise<"file" | "folder" | undefined> {
  return (await ifThere(storage.stat(path)))?.kind;
}

function commonFolder(names: readonly string[]): string {
  let common = dirname(names[0]!).split("/");
  if (common[0] === ".") return "";
  for (const name of names) {
    const parts = dirname(name).split("/");
    let same = 0;
    while (same < common.length && common[same] === parts[same]) same++;
    common = common.slice(0, same);
  }
  return common.join("/");
}

/** Indexes of several file sets of one folder lie side by side; the pattern tells them apart. */
function setName(root: string, path: string): string {
  return createHash("sha256").update(relative(root, path)).digest("hex").slice(0, 16);
}

/** Folders in which, or below which, a match of the glob can lie. Paths as for `globPattern`. */
export function folderPattern(glob: string): RegExp {
  const folders: string[] = [];
  const parts = glob.split("/");
  for (const [i, part] of parts.entries()) {
    const above = parts.slice(0, i).join("/");
    // A brace or bracket that reaches over folders (`{a/b,c}`) cannot be cut at the slashes.
    if (part.includes("**") || !isWhole(part)) {
      folders.push(above === "" ? "**" : `${above}/**`);
      break;
    }
    if (i < parts.length - 1) folders.push(above === "" ? part : `${above}/${part}`);
  }
  return new RegExp(folders.map((folder) => globPattern(folder).source).join("|") || "(?!)", "su");
}

function isWhole(part: string): boolean {
  const count = (char: string): number => part.split(char).length;
  return count("{") === count("}") && count("[") === count("]");
}

/** A glob as a regular expression over `/`-separated relative paths. Unclosed brackets are plain characters. */
export function globPattern(glob: string): RegExp {
  let pattern = "";
  let braces = 0;
  for (let at = 0; at < glob.length; at++) {
    const char = glob[at]!;
    if (char === "*" && glob[at + 1] === "*") {
      at++;
      // `**/` matches no folder, too.
      if (glob[at + 1] === "/") {
        at++;
        pattern += "(?:.*/)?";
      } else {
        pattern += ".*";
      }
    } else if (char === "*") {
      pattern += "[^/]*";
    } else if (char === "?") {
      pattern += "[^/]";
    } else if (char === "[" && glob.indexOf("]", at + 2) > 0) {
      const end = glob.indexOf("]", at + 2);
      const inner = glob
        .slice(at + 1, end)
        .replace(/\\/g, "\\\\")
        .replace(/\[/g, "\\[");
      pattern += inner.startsWith("!") ? `[^/${inner.slice(1)}]` : `[${inner.replace(/^\^/, "\\^")}]`;
      at = end;
    } else if (char === "{" && glob.indexOf("}", at) > 0) {
      braces++;
      pattern += "(?:";
    } else if (char === "}" && braces > 0) {
      braces--;
      pattern += ")";
    } else if (char === "," && braces > 0) {
      pattern += "|";
    } else {
      pattern += char.replace(/[.+^${}()|[\]\\]/, "\\$&");
    }
  }
  try {
    return new RegExp(`^${pattern}$`, "su");
  } catch (error) {
    throw new SourceUnsupported(`this glob cannot be understood: ${glob}`, {}, "check its brackets and braces", error);
  }
}
