/**
 * Parts: the other files that hold values of a virtual dataset. HDF5 gives fill values where one is missing, and looks for it in
 * several places; here it lies beside the file (or at its absolute path), and is there, whole.
 *
 * @example
 * const parts = checkParts(library, file, "tokens", info); // [] where the dataset is not virtual
 */
import { statSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { ShardChanged } from "../../storage/errors.ts";
import { ShardInvalid, Unsupported } from "../errors.ts";
import type { DatasetInfo, Library } from "./library.ts";

export interface Part {
  path: string;
  size: number;
  mtimeNs: string;
}

/** Makes the parts of a dataset readable; throws where one is missing or too small. */
export function checkParts(library: Library, file: string, name: string, info: DatasetInfo): Part[] {
  const sources = info.virtual_sources ?? [];
  if (sources.length === 0) return [];
  const parts = new Map<string, Part>();
  let values = 0;
  for (const { file_name: part, dset_name: dataset } of sources) {
    if (part.includes("%") || dataset.includes("%")) {
      throw new Unsupported(
        `dataset /${name} is virtual, over files named by a pattern (${part})`,
        { file },
        "name its files one by one, or write the values into one file",
      );
    }
    const path = part === "." ? file : isAbsolute(part) ? part : join(dirname(file), part);
    if (path !== file && !parts.has(path)) parts.set(path, statPart(path, file, name));
    library.allow(path);
    values += valuesIn(library, path, dataset, file, name);
  }
  const wanted = info.shape!.reduce((product, n) => product * n, 1);
  if (values < wanted) {
    throw new ShardInvalid(
      `dataset /${name} is virtual and has ${wanted} values, its files hold ${values}: the others would be fill values`,
      { file },
      "restore the files it is made of, or write it again",
    );
  }
  return [...parts.values()];
}

/** Throws where a part is not the one that the index saw. */
export function sameParts(parts: readonly Part[], file: string): void {
  for (const part of parts) {
    const { size, mtimeNs } = statPart(part.path, file, "");
    if (size === part.size && mtimeNs === part.mtimeNs) continue;
    throw new ShardChanged(
      `changed since it was indexed: ${part.size} bytes of time ${part.mtimeNs}, now ${size} of ${mtimeNs}`,
      { file: part.path },
      "run `athanor index` again, or put the old file back",
    );
  }
}

function statPart(path: string, file: string, name: string): Part {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (found !== undefined) return { path, size: Number(found.size), mtimeNs: String(found.mtimeNs) };
  throw new ShardInvalid(
    `dataset /${name} is virtual, and its file ${path} is missing`,
    { file },
    "put that file beside this one, or write the values into one file",
  );
}

function valuesIn(library: Library, path: string, dataset: string, file: string, name: string): number {
  const id = library.call((h5) => h5.open(path, 0, false, -1, -1));
  if (id < 0n) {
    const { message } = library.failure("it cannot be opened");
    throw new ShardInvalid(
      `dataset /${name} is virtual, and its file ${path} cannot be read: ${message}`,
      { file },
      "restore that file",
    );
  }
  try {
    if (library.call((h5) => h5.get_type(id, dataset)) !== 1) {
      throw new ShardInvalid(
        `dataset /${name} is virtual, and ${path} has no dataset ${dataset}`,
        { file },
        "restore that file",
      );
    }
    const { shape } = library.call((h5) => h5.get_dataset_metadata(id, dataset));
    return shape?.reduce((product, n) => product * n, 1) ?? 0;
  } finally {
    if (library.usable) library.call((h5) => h5.close_file(id));
  }
}
