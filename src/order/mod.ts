/** Public face of the order: what `src/index.ts` offers to Node programs. The house itself imports file by file. */
export { deal } from "./deal.ts";
export { Order } from "./order.ts";
export { resolveOrder } from "./resolve.ts";
export { parseState, stateOf } from "./state.ts";
