/**
 * Quota: what `lfs quota` tells of a user, a group or a project, and whether so much more fits.
 *
 * Contract: a quota that is not told (no quota on this file system, no answer) is a note, never a refusal: `lfs` itself refuses then.
 *
 * @example
 * const { short } = await roomByQuota("/mnt/lustre", "/mnt/lustre/d", undefined, { bytes: 1e12, files: 1000 });
 */
import { runTool } from "../base/run-tool.ts";
import { formatCount, formatSize } from "../base/units.ts";

export interface Quota {
  /** Bytes, and files. 0: no limit. */
  bytes: { used: number; soft: number; hard: number; over: boolean };
  files: { used: number; soft: number; hard: number; over: boolean };
}

/** Whose files they will be. */
export interface Owner {
  uid: number;
  gid: number;
}

/**
 * `short`: which quota has no room for it. `notes`: which one is not known. `path`: a folder that is there, for its project. `owner`: undefined:
 * this process.
 */
export async function roomByQuota(
  point: string,
  path: string,
  owner: Owner | undefined,
  wanted: { bytes: number; files: number },
  timeoutMs?: number,
): Promise<{ short: string[]; notes: string[] }> {
  const ids = [
    ["-u", "user", String(owner?.uid ?? process.getuid?.() ?? 0)],
    ["-g", "group", String(owner?.gid ?? process.getgid?.() ?? 0)],
  ];
  const project = /^ *(\d+) /.exec((await runTool("lfs", ["project", "-d", path], { timeoutMs })).stdout)?.[1];
  if (project !== undefined && project !== "0") ids.push(["-p", "project", project]);
  const short: string[] = [];
  const notes: string[] = [];
  for (const [flag, kind, id] of ids as [string, string, string][]) {
    // oxlint-disable-next-line no-await-in-loop -- one at a time is the manners of a guest
    const ran = await runTool("lfs", ["quota", flag, id, point], { timeoutMs });
    const quota = parseQuota(ran.stdout);
    if (quota === undefined) notes.push(`quota of ${kind} ${id} not known: ${whyNot(ran)}`);
    else short.push(...lacking(quota, wanted).map((what) => `quota of ${kind} ${id}: ${what}`));
  }
  return { short, notes };
}

function whyNot({ missing, timedOut, stderr }: Awaited<ReturnType<typeof runTool>>): string {
  if (missing) return "there is no `lfs` here";
  return timedOut ? "`lfs quota` does not answer" : stderr.trim().split("\n")[0] || "`lfs quota` told nothing";
}

function lacking({ bytes, files }: Quota, wanted: { bytes: number; files: number }): string[] {
  const room = ({ used, soft, hard }: Quota["bytes"]): number => {
    // Above the soft limit a time of grace runs, of which nobody knows what is left.
    const limit = soft > 0 ? soft : hard;
    return limit === 0 ? Infinity : Math.max(0, limit - used);
  };
  const [freeBytes, freeFiles] = [room(bytes), room(files)];
  return [
    ...(wanted.bytes > freeBytes ? [`${formatSize(freeBytes)} left, ${formatSize(wanted.bytes)} needed`] : []),
    ...(wanted.files > freeFiles ? [`${formatCount(freeFiles)} files left, ${formatCount(wanted.files)} needed`] : []),
  ];
}

/**
 * `lfs quota`: kbytes, bquota, blimit, bgrace, files, iquota, ilimit, igrace. A long name of the file system stands on a line of its own; `*`
 * is over the limit, `[n]` not all servers told.
 */
export function parseQuota(text: string): Quota | undefined {
  const rest = /^ *Filesystem +kbytes.*\n([\s\S]*)/m.exec(text)?.[1];
  if (rest === undefined) return undefined;
  const number = String.raw`\[?(\d+)\]?(\*?)\]?`;
  const shape = new RegExp(String.raw`\s${number}\s+(\d+)\s+(\d+)\s+\S+\s+${number}\s+(\d+)\s+(\d+)\s+\S+`);
  const found = shape.exec(rest);
  if (found === null) return undefined;
  const [, kbytes, overBytes, bsoft, bhard, files, overFiles, isoft, ihard] = found;
  return {
    bytes: {
      used: Number(kbytes) * 1024,
      soft: Number(bsoft) * 1024,
      hard: Number(bhard) * 1024,
      over: overBytes === "*",
    },
    files: { used: Number(files), soft: Number(isoft), hard: Number(ihard), over: overFiles === "*" },
  };
}
