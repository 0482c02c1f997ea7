/** Errors of storage. Each code has a section in docs/reference/errors.md. */
import { defineError } from "../base/errors.ts";
import type { ObjectVersion } from "./types.ts";

export const ShardChanged = defineError("ATH_SHARD_CHANGED", 1);
export const ShardTruncated = defineError("ATH_SHARD_TRUNCATED", 1);
export const StorageIo = defineError("ATH_STORAGE_IO", 3);
export const NotFound = defineError("ATH_NOT_FOUND", 3);
export const AccessDenied = defineError("ATH_ACCESS_DENIED", 3);
/** A name that is not UTF-8: it would come back as another one. */
export const FileName = defineError("ATH_FILE_NAME", 1);
export const NotAFile = defineError("ATH_NOT_A_FILE", 2);

/** Undefined where what `work` asks for is not there. */
export async function ifThere<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work;
  } catch (error) {
    if ((error as { code?: string }).code === "ATH_NOT_FOUND") return undefined;
    throw error;
  }
}

/** What a thread tells of a failed call: errno name, text, the path it concerns, and how far a read had come. */
export interface SystemFault {
  code: string;
  message: string;
  path: string;
  byteOffset: number | undefined;
}

/** Faults that a fresh handle can cure: an evicted client, a restarted server, a lost object that came back. */
export const RETRIED: ReadonlySet<string> = new Set(["ESTALE", "ESHUTDOWN", "EIO", "ETIMEDOUT", "EINTR", "EAGAIN"]);

/** No errno: a link among the files that are asked for leads to no file. */
export const NOWHERE = "NOWHERE";

/** The clear error of one errno. `begin`: where the read was meant to begin; `target`: what holds those bytes, in words. */
export function systemError(fault: SystemFault, begin?: number, tries = 1, target?: string): Error {
  const byteOffset = fault.byteOffset ?? begin;
  const where = byteOffset === undefined ? { file: fault.path } : { file: fault.path, byteOffset };
  const cause = described(fault);
  switch (fault.code) {
    case "ENOENT":
      return new NotFound("no such file or folder", where, "check the path and that the file system is mounted", cause);
    case NOWHERE:
      return new NotFound(`a link that leads nowhere: ${fault.message}`, where, "mend the link or remove it");
    case "ENOTDIR":
      return new NotFound("a part of the path is not a folder", where, "check the path", cause);
    case "EACCES":
    case "EPERM":
      return new AccessDenied("reading it is not allowed for this user", where, "check owner and mode", cause);
    case "EISDIR":
      return new NotAFile("is a folder, expected a file", where, undefined, cause);
    case "EILSEQ":
      return new FileName(
        "the name is not UTF-8",
        where,
        "rename it (convmv); where a glob is taken, one leaves it out",
        cause,
      );
    case "ELOOP":
      return new NotFound("too many symbolic links, or a loop of them", where, "check the links", cause);
    default:
      return new StorageIo(
        `the file system answered ${fault.code}${tries > 1 ? ` ${tries} times` : ""}${target === undefined ? "" : ` (${target})`}`,
        where,
        target === undefined
          ? "check the mount and the node's kernel log"
          : "`lfs check osts` and the node's kernel log tell more; the same state goes on when it is back",
        cause,
      );
  }
}

/** Node has no words for some: "Unknown system error -116: Unknown system error -116, read", "UNKNOWN: unknown error, write". */
function described({ code, message }: SystemFault): string {
  return message.replace(
    /^(?:Unknown system error -\d+: Unknown system error -\d+|UNKNOWN: unknown error)/,
    `${code}: ${WORDS[code] ?? "no words for it"}`,
  );
}

const WORDS: Readonly<Record<string, string>> = {
  EDQUOT: "disk quota exceeded",
  EREMOTEIO: "remote I/O error",
  ESTALE: "stale file handle",
};

export function changedError(path: string, found: ObjectVersion, expected: ObjectVersion): Error {
  return new ShardChanged(
    `changed since it was indexed: found ${versionText(found)}, expected ${versionText(expected)}`,
    { file: path },
    "run `athanor index` again, or put the old file back",
  );
}

function versionText(version: ObjectVersion): string {
  // Date holds milliseconds only; the nanoseconds tell two writes within one apart.
  const date = new Date(Number(version.mtimeNs / 1_000_000n)).toISOString().slice(0, 19);
  const nanoseconds = String(version.mtimeNs % 1_000_000_000n).padStart(9, "0");
  return `${version.size} bytes of ${date}.${nanoseconds}Z`;
}

export function truncatedError(path: string, offset: number, found: number, expected: number): Error {
  return new ShardTruncated(
    `shard is shorter than expected: found ${found} bytes at byte ${offset}, expected ${expected}`,
    { file: path, byteOffset: offset },
    "copy the shard again, then run `athanor index`",
  );
}
