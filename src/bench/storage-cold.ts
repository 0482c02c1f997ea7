/**
 * Cold: takes the pages of files out of the page cache and counts those that stay.
 *
 * Node has no posix_fadvise, so a Python makes the calls, which training needs anyway; only its standard library. fsync first, since dirty
 * pages stay; then mincore (over a private map, of which no byte is touched) says what is left. That call tells "all of it" of files that
 * belong to somebody else: then nothing is called cold. What servers, controllers and hosts of virtual disks keep is not seen here.
 *
 * @example
 * await dropPages([{ path: "/mnt/lustre/d/a.tar", bytes: 1 << 30 }], 60_000); // 0: nothing is cached any more
 */
import { spawn } from "node:child_process";
import { abandon } from "../base/run-tool.ts";
import { pythonCommand } from "../base/python.ts";

/** The first bytes of a file. */
export interface Sized {
  path: string;
  bytes: number;
}

/** From here on a read is not called cold. */
export const KEPT = 0.05;

/** The share of their bytes that is still cached; undefined: there is no Python, or it does not answer. */
export function dropPages(files: readonly Sized[], timeoutMs: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const child = spawn(pythonCommand(), ["-I", "-S", "-c", SCRIPT, "0"], { stdio: ["pipe", "pipe", "ignore"] });
    let printed = "";
    const end = (): void => {
      clearTimeout(timer);
      abandon(child);
      const share = /^kept (\S+)$/m.exec(printed)?.[1];
      resolve(share === undefined ? undefined : Number(share));
    };
    // Its fsync may have all to write that was written.
    const timer = setTimeout(end, timeoutMs);
    child.stdout.on("data", (text: Buffer) => (printed += String(text)));
    child.on("error", end);
    child.on("close", end);
    child.stdin.on("error", () => undefined); // `close` tells it
    child.stdin.end(files.map(({ path, bytes }) => `${JSON.stringify([path, bytes])}\n`).join(""));
  });
}

/** Python 3.6 or later. `[path, bytes]` in, a line each; the first bytes of the file are meant. */
const SCRIPT = `
import ctypes, json, mmap, os, sys
mincore = ctypes.CDLL(None, use_errno=True).mincore
mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
page, kept, whole = mmap.PAGESIZE, 0, 0
for line in sys.stdin.buffer:
    path, size = json.loads(line.decode("utf-8"))
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(file)
    except OSError:
        pass
    os.posix_fadvise(file, 0, size, os.POSIX_FADV_DONTNEED)
    if size > 0:
        mapped = mmap.mmap(file, size, access=mmap.ACCESS_COPY)
        first = ctypes.c_char.from_buffer(mapped)
        told = (ctypes.c_ubyte * (-(-size // page)))()
        if mincore(ctypes.addressof(first), size, told) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        held = bytes(told)
        kept += len(held) - held.count(0)
        whole += len(held)
        del first
        mapped.close()
    os.close(file)
print("kept", kept / max(1, whole))
`;
