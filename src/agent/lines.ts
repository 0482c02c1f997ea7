/**
 * Lines: newline-delimited JSON on a socket. Looked at: `node:readline` (needs a stream of its own and keeps no bound
 * on the length of a line), ndjson/split2 (object streams; a bound would be ours too). Twenty lines do.
 */
import type { Socket } from "node:net";

/** A line above this is refused: the longest is a `get` of a million sample numbers. */
const MAX_LINE = 32 * 1024 * 1024;

/** Calls `line` for every whole line; bytes behind the first line go to `raw` once it has been set by `line`. */
export function readLines(socket: Socket, line: (text: string) => ((bytes: Buffer) => void) | void): void {
  let rest: Buffer[] = [];
  let length = 0;
  let raw: ((bytes: Buffer) => void) | undefined;
  socket.on("data", (chunk: Buffer) => {
    let at = 0;
    while (raw === undefined && at < chunk.length) {
      const end = chunk.indexOf(0x0a, at);
      const piece = chunk.subarray(at, end < 0 ? undefined : end);
      rest.push(piece);
      length += piece.length;
      if (length > MAX_LINE) return void socket.destroy();
      if (end < 0) return;
      const text = Buffer.concat(rest).toString("utf8");
      rest = [];
      length = 0;
      at = end + 1;
      raw = line(text) ?? undefined;
    }
    if (raw !== undefined && at < chunk.length) raw(chunk.subarray(at));
  });
}

export function writeLine(socket: Socket, message: object): void {
  if (socket.writable) socket.write(`${JSON.stringify(message)}\n`);
}
