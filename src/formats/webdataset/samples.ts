/**
 * Samples of an archive: members grouped by key, as they come.
 *
 * Contract: `next` gives a sample once the first member of the following one (or the end mark) was seen; it asks for bytes
 * when it has too few. Members that are no part of a sample are passed over and split none.
 *
 * @example
 * const reader = new SampleReader(place);
 * for (let found = reader.next(bytes, 0); ; found = reader.next(bytes, 0)) …
 */
import type { Where } from "../../base/errors.ts";
import { splitName } from "./names.ts";
import type { Sample } from "./sample.ts";
import { readMember } from "./tar.ts";

export type FoundSample = { sample: Sample } | { need: number } | { endMark: true; sample?: Sample };

export class SampleReader {
  /** Offset in the shard of the member to be looked at next. */
  at: number;
  /** The sample in work, and whether it is the one that begins the bytes. */
  open: Sample | undefined;
  private readonly place: (at: number) => Where;

  constructor(at: number, place: (at: number) => Where) {
    this.at = at;
    this.place = place;
  }

  /** `bytes[0]` is byte `offset` of the shard; they reach back to the begin of the sample in work. */
  next(bytes: Uint8Array, offset: number): FoundSample {
    for (;;) {
      const { at } = this;
      const found = readMember(bytes, at - offset, (where) => this.place(where + offset));
      if ("need" in found) return { need: at - offset + found.need };
      if ("endMark" in found) {
        const sample = this.open;
        this.open = undefined;
        return sample === undefined ? { endMark: true } : { endMark: true, sample };
      }
      const begin = at;
      const next = found.next + offset;
      const name = found.file ? splitName(found.name) : undefined;
      this.at = next;
      if (name === undefined) continue;
      const part = { part: name.part, from: found.data + offset, to: found.end + offset };
      const { open } = this;
      if (open !== undefined && open.key === name.key) {
        open.parts.push(part);
        open.end = next;
        continue;
      }
      this.open = { key: name.key, begin, end: next, parts: [part] };
      if (open !== undefined) return { sample: open };
    }
  }
}
