/** Offsets of the segment file: one JSON for both languages, pictured in `docs/reference/protocol.md`. */
import type { SlotOffsets } from "../feed/batcher.ts";
import layout from "./layout.json" with { type: "json" };

export { layout };

/** Where the feed finds the fields of a slot. */
export const slotOffsets: SlotOffsets = {
  position: layout.slot.position,
  step: layout.slot.step,
  rows: layout.slot.rows,
  flags: layout.slot.flags,
  truncated: layout.slot.truncated,
  replaced: layout.slot.replaced,
  identities: layout.slot.identities,
  identityBytes: layout.identityBytes,
  paddedFlag: layout.flags.padded,
};

/** Stands in `wakeAt` when the agent wants no ring. */
export const NEVER = 2n ** 64n - 1n;
