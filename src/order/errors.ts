/** Errors of the order: options that cannot be, positions outside it, states and proofs that do not fit. */
import { defineError } from "../base/errors.ts";

/** An order option is not usable (size, range, combination). */
export const OrderOption = defineError("ATH_ORDER_OPTION", 2);
/** A position outside the sequence: before the segment, not whole, or beyond 2^53. */
export const OrderPosition = defineError("ATH_ORDER_POSITION", 1);
/** `global` needs random reads, and a stream has none. */
export const OrderStream = defineError("ATH_ORDER_STREAM", 2);
/** A state is not one: wrong shape, wrong number, unknown version. */
export const StateInvalid = defineError("ATH_STATE_INVALID", 1);
/** A state belongs to another view, seed or global batch. */
export const StateMismatch = defineError("ATH_STATE_MISMATCH", 1);
/** A proof file is damaged or of an unknown version. */
export const ProofInvalid = defineError("ATH_PROOF_INVALID", 1);
/** What was served is not what the order says. */
export const ProofMismatch = defineError("ATH_PROOF_MISMATCH", 1);
/** A description of a data set (for `plan`) cannot be used. */
export const DescriptionInvalid = defineError("ATH_DESCRIPTION_INVALID", 2);
/** A ledger of replaced records is damaged. */
export const LedgerInvalid = defineError("ATH_LEDGER_INVALID", 1);
