/**
 * Names of members: which sample a member belongs to, and which of its parts it is.
 *
 * @example
 * splitName("train.v1/0001.seg.TXT"); // { key: "train.v1/0001", part: "seg.txt" }
 */

export interface PartName {
  /** The path up to the first dot behind the last slash. */
  key: string;
  /** The rest in lower case: a part may have dots itself. */
  part: string;
}

/**
 * Undefined: no part of a sample: no extension, a name that begins with a dot (`._x` of macOS, `.hidden`), or a name of the archive
 * itself (`__meta__`, `__MACOSX/…`).
 */
export function splitName(name: string): PartName | undefined {
  if (name.includes("__") && (/^__[^/]*__($|\/)/.test(name) || /(^|\/)__MACOSX\//.test(name))) return undefined;
  const base = name.lastIndexOf("/") + 1;
  const dot = name.indexOf(".", base);
  if (dot <= base) return undefined;
  return { key: name.slice(0, dot), part: name.slice(dot + 1).toLowerCase() };
}
