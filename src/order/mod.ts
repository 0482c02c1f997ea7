/** Public face of the order; see `order.ts`. */
export { deal, owner, type Dealt } from "./deal.ts";
export { Epochs } from "./epochs.ts";
export { Feistel } from "./feistel.ts";
export { type Piece } from "./layout.ts";
export { Mixer, permutation, PURPOSE } from "./mix.ts";
export { Order, type Window } from "./order.ts";
export { DEFAULT_SHUFFLE_MEMORY, defaultLanes, isHeld, resolveOrder } from "./resolve.ts";
export { expectedSum, ProofSum, rowHash, shardKey, type Identity } from "./proof.ts";
export { compareProof, readProof, type Proof, type ProofReport, type ProofStep, type ProofText } from "./proof-files.ts";
export { checkState, parseState, stateOf, type SourceIdentity } from "./state.ts";
