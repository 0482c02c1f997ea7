/** Offsets of the segment file: one JSON for both languages, pictured in `docs/reference/protocol.md`. */
import layout from "./layout.json" with { type: "json" };

export { layout };

/** Stands in `wakeAt` when the agent wants no ring. */
export const NEVER = 2n ** 64n - 1n;
