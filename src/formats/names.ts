/** Names: parts of paths as listings give them, `/` between them. Formats know no other paths. */

/** What stands behind the last `/`. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** What stands before it; empty: the root. */
export function folderName(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}
