/** Errors of the agent. */
import { defineError } from "../base/errors.ts";

export const ProtocolMismatch = defineError("ATH_PROTOCOL_MISMATCH", 3);
export const ProtocolMessage = defineError("ATH_PROTOCOL_MESSAGE", 3);
export const SegmentRefused = defineError("ATH_SEGMENT_REFUSED", 3);
export const SessionDisagrees = defineError("ATH_SESSION_DISAGREES", 1);
export const BatchArithmetic = defineError("ATH_BATCH_ARITHMETIC", 1);
export const IndexTooLarge = defineError("ATH_INDEX_NEEDED", 1);
