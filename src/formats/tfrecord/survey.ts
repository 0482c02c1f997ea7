/**
 * Survey of a block that holds bad records: where each record lies, and what is wrong with the bad ones.
 *
 * Contract: a function of the bytes and the block table. Restarts stand fast: each stretch of 64 records between two of them
 * is walked by its lengths; where a length cannot be, the damage reaches to the next whole record of the stretch (resync.ts),
 * or to its end. If records and damaged pieces together are as many as the index says, each piece is one record (so it is
 * with an index that was made of the damaged bytes). Else records before the first damage are counted from the front, those
 * behind the last one from the end, and all between are lost.
 *
 * @example
 * const { begin, end, faults } = survey(kernels, { raw, rawBytes, firstRecord, records, restarts, row, rows, plan, … });
 */
import type { AthanorError } from "../../base/errors.ts";
import type { Kernels } from "../../kernels/kernels.ts";
import { RecordCrc } from "../errors.ts";
import { RESTART_EVERY, type BlockSurvey, type SurveyRequest } from "../types.ts";
import { decodeFault } from "./decode.ts";
import { FRAME_BYTES, HEADER_BYTES, nextWhole, payloadBytes } from "./resync.ts";

interface Piece {
  begin: number;
  end: number;
  damaged: boolean;
}

export function survey(kernels: Kernels, request: SurveyRequest): BlockSurvey {
  const { records, restarts, rawBytes } = request;
  const begin = new Uint32Array(records);
  const end = new Uint32Array(records);
  const faults = new Map<number, AthanorError>();
  new Uint32Array(kernels.memory.buffer, request.rows, records).fill(request.row);
  for (let group = 0; group < restarts.length; group++) {
    const first = group * RESTART_EVERY;
    const count = Math.min(RESTART_EVERY, records - first);
    const behind = restarts[group + 1] ?? rawBytes;
    const pieces = walk(kernels, request.raw, restarts[group]!, behind);
    assign(pieces, count, behind).forEach((piece, i) => {
      begin[first + i] = piece.begin;
      end[first + i] = piece.end;
      if (piece.damaged) faults.set(first + i, lost(kernels, request, first + i, piece, behind));
    });
  }
  decodeAll(kernels, request, begin, end, faults);
  return { begin, end, faults };
}

/** Records and damaged pieces of [from, behind), offsets from `raw`. */
function walk(kernels: Kernels, raw: number, from: number, behind: number): Piece[] {
  const bytes = new Uint8Array(kernels.memory.buffer);
  const pieces: Piece[] = [];
  for (let at = from; at < behind;) {
    const length = at + HEADER_BYTES <= behind ? payloadBytes(bytes, raw + at) : -1;
    const whole = length >= 0 && at + length + FRAME_BYTES <= behind;
    const next = whole ? 0 : nextWhole(kernels, raw + at + 1, raw + behind);
    const end = whole ? at + length + FRAME_BYTES : next < 0 ? behind : next - raw;
    pieces.push({ begin: at, end, damaged: !whole });
    at = end;
  }
  return pieces;
}

/** One piece for each of `count` records. */
function assign(pieces: readonly Piece[], count: number, behind: number): Piece[] {
  if (pieces.length === count) return [...pieces];
  const first = pieces.findIndex((piece) => piece.damaged);
  const last = pieces.findLastIndex((piece) => piece.damaged);
  const front = pieces.slice(0, first < 0 ? pieces.length : first).slice(0, count);
  const rest = count - front.length;
  const back = first < 0 || rest === 0 ? [] : pieces.slice(last + 1).slice(-rest);
  const hole = { begin: first < 0 ? behind : pieces[first]!.begin, end: behind, damaged: true };
  return [...front, ...Array.from({ length: rest - back.length }, () => hole), ...back];
}

/** Why a record is lost: what is wrong with the length at which the damage begins, seen from its first record. */
function lost(kernels: Kernels, request: SurveyRequest, i: number, piece: Piece, behind: number): AthanorError {
  const { raw, rows, plan, shardKey, file, fileOffset } = request;
  if (piece.begin < behind) {
    const block = { raw: raw + piece.begin, rawBytes: behind - piece.begin, records: 1, rows: rows + i * 4, plan };
    const firstRecord = request.firstRecord + i;
    const { fault } = kernels.decodeExamples({ ...block, firstRecord, shardKey, checkCrc: true });
    const place = { file, firstRecord, fileOffset: fileOffset + piece.begin, plan };
    if (fault !== undefined) return decodeFault(kernels, place, fault);
  }
  return new RecordCrc(
    "the index names this record, the bytes hold no record for it",
    { file, record: request.firstRecord + i, byteOffset: fileOffset + piece.begin },
    "the file is damaged: copy or write the shard again",
  );
}

/** Decodes every record that is not lost into the scratch row, run by run, and goes on behind each bad one. */
function decodeAll(
  kernels: Kernels,
  request: SurveyRequest,
  begin: Uint32Array,
  end: Uint32Array,
  faults: Map<number, AthanorError>,
): void {
  const { raw, records, rows, plan, shardKey, file, fileOffset } = request;
  for (let from = 0; from < records;) {
    if (faults.has(from)) {
      from++;
      continue;
    }
    let to = from + 1;
    while (to < records && !faults.has(to) && begin[to] === end[to - 1]) to++;
    const { fault } = kernels.decodeExamples({
      raw: raw + begin[from]!,
      rawBytes: end[to - 1]! - begin[from]!,
      firstRecord: request.firstRecord + from,
      records: to - from,
      rows: rows + from * 4,
      plan,
      shardKey,
      checkCrc: true,
    });
    if (fault !== undefined) {
      const place = { file, firstRecord: request.firstRecord + from, fileOffset: fileOffset + begin[from]!, plan };
      faults.set(from + fault.record, decodeFault(kernels, place, fault));
      to = from + fault.record + 1;
    }
    from = to;
  }
}
