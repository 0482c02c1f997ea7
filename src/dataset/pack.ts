/**
 * Pack: which pieces of records stand in which row of a view (docs/reference/formats.md, "Split and pack"). Arithmetic only: a
 * function of the records' token counts and `max_length`.
 *
 * Contract: a record is cut every `max_length` tokens from its first one on. `split`: each piece is a row, and a record without
 * tokens is an empty one. `pack`: best-fit decreasing: the longest piece first (of equal ones the first in the file), into the
 * row with least room that it fits in (of equal ones the row that has had that room for longest), else into a new row. Rows
 * stand in the order of their first pieces, pieces in a row in file order. Every token is in exactly one row.
 *
 * Looked at: bin-packing packages of npm (all quadratic, none with an order of ties that is written down).
 *
 * @example
 * const { rows, start, length } = packRecords(Uint32Array.of(700, 300, 212), "pack", 512);
 * // 3 rows: 512 | 188 + 300 | 212
 */

export type PieceRule = "split" | "pack";

/** The count of a bad record that was kept: it is in no row. */
export const BAD_COUNT = 0xffffffff;

/** Row r holds pieces [start[r], start[r + 1]). */
export interface PackedRows {
  rows: number;
  start: Uint32Array;
  /** Of each piece: number of its record (of `counts`), its first token in that, and its tokens. */
  record: Uint32Array;
  token: Uint32Array;
  length: Uint32Array;
}

/** `counts`: tokens of consecutive records of one block. */
export function packRecords(counts: Uint32Array, rule: PieceRule, maxLength: number): PackedRows {
  const pieces = cutRecords(counts, rule, maxLength);
  const total = pieces.record.length;
  if (rule === "split") return { rows: total, start: Uint32Array.from({ length: total + 1 }, (_, i) => i), ...pieces };
  return inRows(pieces, bestFit(pieces.length, maxLength));
}

/** Most pieces of one row. */
export function mostPieces({ rows, start }: PackedRows): number {
  let most = 0;
  for (let row = 0; row < rows; row++) most = Math.max(most, start[row + 1]! - start[row]!);
  return most;
}

type Pieces = Pick<PackedRows, "record" | "token" | "length">;

function cutRecords(counts: Uint32Array, rule: PieceRule, maxLength: number): Pieces {
  const least = rule === "split" ? 1 : 0;
  const piecesOf = (count: number): number => (count === BAD_COUNT ? 0 : Math.max(least, Math.ceil(count / maxLength)));
  let total = 0;
  for (const count of counts) total += piecesOf(count);
  const record = new Uint32Array(total);
  const token = new Uint32Array(total);
  const length = new Uint32Array(total);
  let at = 0;
  for (let i = 0; i < counts.length; i++) {
    const count = counts[i]!;
    const pieces = piecesOf(count);
    for (let piece = 0; piece < pieces; piece++) {
      record[at] = i;
      token[at] = piece * maxLength;
      length[at++] = Math.min(maxLength, count - piece * maxLength);
    }
  }
  return { record, token, length };
}

/** More pieces than a block can have; the key of a piece stays below 2^53, as lengths are below 2^25. */
const MOST_PIECES = 2 ** 28;

/** Row of each piece, rows numbered as they were begun. */
function bestFit(length: Uint32Array, maxLength: number): Uint32Array {
  if (length.length > MOST_PIECES) throw new RangeError(`a block of ${length.length} pieces, at most ${MOST_PIECES}`);
  const keys = Float64Array.from(length, (tokens, i) => (maxLength - tokens) * MOST_PIECES + i).sort();
  const open = new OpenRows();
  const row = new Uint32Array(length.length);
  let rows = 0;
  for (const key of keys) {
    const piece = key % MOST_PIECES;
    const tokens = length[piece]!;
    const room = open.least(tokens);
    const found = room === 0 ? rows++ : open.take(room);
    row[piece] = found;
    const left = (room === 0 ? maxLength : room) - tokens;
    if (left > 0) open.add(found, left);
  }
  return row;
}

/**
 * Rows with room, by room: those of equal room in a queue. A block of T tokens has at most 2 T / max_length rows, so there are
 * no more than √(2 T) different rooms: some thousand words to move at worst.
 */
class OpenRows {
  private rooms = new Uint32Array(1024);
  private count = 0;
  private readonly queues = new Map<number, { rows: number[]; head: number }>();

  /** The least room of at least `tokens`; 0: there is none. */
  least(tokens: number): number {
    return this.rooms[this.place(tokens)] ?? 0;
  }

  take(room: number): number {
    const queue = this.queues.get(room)!;
    const row = queue.rows[queue.head++]!;
    if (queue.head === queue.rows.length) {
      this.queues.delete(room);
      const at = this.place(room);
      this.rooms.copyWithin(at, at + 1, this.count);
      this.rooms[--this.count] = 0;
    }
    return row;
  }

  add(row: number, room: number): void {
    const queue = this.queues.get(room);
    if (queue !== undefined) return void queue.rows.push(row);
    this.queues.set(room, { rows: [row], head: 0 });
    // One 0 stays behind the last: it says that there is none.
    if (this.count + 1 === this.rooms.length) {
      const more = new Uint32Array(this.rooms.length * 2);
      more.set(this.rooms);
      this.rooms = more;
    }
    const at = this.place(room);
    this.rooms.copyWithin(at + 1, at, this.count);
    this.rooms[at] = room;
    this.count++;
  }

  /** Of the first room of at least `tokens`. */
  private place(tokens: number): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.rooms[middle]! < tokens) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Rows in the order of their first pieces. */
function inRows({ record, token, length }: Pieces, begun: Uint32Array): PackedRows {
  const total = record.length;
  const number = new Map<number, number>();
  const row = begun.map((first) => {
    const known = number.get(first) ?? number.size;
    number.set(first, known);
    return known;
  });
  const rows = number.size;
  const start = new Uint32Array(rows + 1);
  for (const r of row) start[r + 1]!++;
  for (let r = 0; r < rows; r++) start[r + 1]! += start[r]!;
  const next = start.slice(0, rows);
  const packed = { record: new Uint32Array(total), token: new Uint32Array(total), length: new Uint32Array(total) };
  for (let piece = 0; piece < total; piece++) {
    const at = next[row[piece]!]!++;
    packed.record[at] = record[piece]!;
    packed.token[at] = token[piece]!;
    packed.length[at] = length[piece]!;
  }
  return { rows, start, ...packed };
}
