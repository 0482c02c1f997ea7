/**
 * Trace of a contender's calls on its data, by `strace -f -y`: how many of which kind, and the bytes that reads brought. Pure.
 *
 * Contract: calls that failed count: they are asked, too. A call that another thread interrupted comes in two lines and counts once. What
 * is no path of the data or of its index is left out: imports, libraries, sockets.
 *
 * @example
 * const { data, index } = parseTrace(text, { files: ["/d/a.tfrecord"], folder: "/d", index: "/d/.athanor" });
 * data.opens + data.closes;
 */

export interface Calls {
  opens: number;
  closes: number;
  /** By name: stat, access, readlink, xattrs. */
  stats: number;
  /** getdents. */
  lists: number;
  /** Of an open descriptor: on Lustre the locks that came with it answer. */
  fstats: number;
  reads: number;
  /** That reads brought. */
  bytes: number;
}

export interface TracedCalls {
  /** Of the files of the data. */
  data: Calls;
  index: Calls;
  /** Of folders, and of what else lies there. */
  folders: Calls;
}

export interface TracedPlaces {
  /** Absolute paths. */
  files: readonly string[];
  folder: string;
  /** Folder of the index. */
  index: string;
}

type Kind = Exclude<keyof Calls, "bytes">;

const KINDS: Readonly<Record<string, Kind>> = {
  ...of("opens", "open", "openat", "openat2"),
  ...of("closes", "close"),
  ...of("stats", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat"),
  ...of("stats", "getxattr", "lgetxattr", "statfs"),
  ...of("lists", "getdents", "getdents64"),
  ...of("fstats", "fstat"),
  ...of("reads", "read", "pread64", "readv", "preadv", "preadv2"),
};

/** What goes before the command that is traced. --seccomp-bpf: only these calls stop a process. -s 0: no content. */
export function straceWords(output: string): string[] {
  const calls = `trace=${Object.keys(KINDS).join(",")}`;
  return ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "0", "-e", calls, "-e", "signal=none", "-o", output];
}

export function parseTrace(trace: string, { files, folder, index }: TracedPlaces): TracedCalls {
  const known = new Set(files);
  const found: TracedCalls = { data: none(), index: none(), folders: none() };
  const groupOf = (path: string): Calls | undefined => {
    if (known.has(path)) return found.data;
    if (path === index || path.startsWith(`${index}/`)) return found.index;
    return path === folder || path.startsWith(`${folder}/`) ? found.folders : undefined;
  };
  /** Reads that are not back, by thread. */
  const open = new Map<string, Calls>();
  for (const line of trace.split("\n")) {
    const [, thread, name, rest] = /^(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)$/.exec(line) ?? [];
    const kind = KINDS[name ?? ""];
    if (thread === undefined || rest === undefined || kind === undefined) continue;
    let calls = open.get(thread);
    if (line.includes("<... ")) open.delete(thread);
    else {
      const named = kind === "reads" ? undefined : /"((?:[^"\\]|\\.)+)"/.exec(rest)?.[1];
      const path = named ?? /^\d+<([^>]*)>/.exec(rest)?.[1];
      calls = path === undefined ? undefined : groupOf(unescaped(path));
      if (calls === undefined) continue;
      calls[kind === "stats" && named === undefined ? "fstats" : kind]++;
      if (kind === "reads" && line.endsWith("<unfinished ...>")) open.set(thread, calls);
    }
    const bytes = kind === "reads" ? / = (\d+)$/.exec(line)?.[1] : undefined;
    if (calls !== undefined && bytes !== undefined) calls.bytes += Number(bytes);
  }
  return found;
}

/** strace writes what is no plain ASCII, and `<` and `>` of descriptors' paths, as in C. */
function unescaped(path: string): string {
  if (!path.includes("\\")) return path;
  const bytes = path.replace(/\\(?:([0-7]{1,3})|(.))/g, (_, octal: string | undefined, letter: string) =>
    octal === undefined ? (LETTERS[letter] ?? letter) : String.fromCharCode(parseInt(octal, 8)),
  );
  return Buffer.from(bytes, "latin1").toString("utf8");
}

const LETTERS: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", v: "\v", f: "\f" };

export function minus(a: Calls, b: Calls): Calls {
  const difference = none();
  for (const key of Object.keys(difference) as (keyof Calls)[]) difference[key] = a[key] - b[key];
  return difference;
}

/** Questions to a metadata server, were this Lustre. */
export function metadataOf({ opens, closes, stats, lists }: Calls): number {
  return opens + closes + stats + lists;
}

function none(): Calls {
  return { opens: 0, closes: 0, stats: 0, lists: 0, fstats: 0, reads: 0, bytes: 0 };
}

function of(kind: Kind, ...names: string[]): Record<string, Kind> {
  return Object.fromEntries(names.map((name) => [name, kind]));
}
