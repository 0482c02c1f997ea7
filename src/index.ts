/**
 * The package's public door for Node programs: index a data set, and compute the order of a run without an agent.
 * Training goes through the Python client. Everything else under `dist/` may change in any version; a test snapshots
 * these names.
 *
 * @example
 * import { createPosixStorage, openIndex } from "athanor";
 * const storage = createPosixStorage();
 * const index = await openIndex("/mnt/lustre/d", { storage });
 * console.log(index?.totals);
 * await storage.close();
 */
export { AthanorError, type ErrorRecord, type Where } from "./base/errors.ts";
export { createPosixStorage, type PosixStorage, type PosixStorageOptions } from "./storage/posix.ts";
export type { ListedObject, ObjectVersion, ReadableObject, Storage } from "./storage/types.ts";
export { buildIndex, type BuildOptions } from "./dataset/index-build.ts";
export { openIndex, type IndexPlace } from "./dataset/index-read.ts";
export type { DatasetIndex, ShardRow } from "./dataset/types.ts";
export { viewFingerprint, type ViewSpec } from "./dataset/fingerprint.ts";
export { extents, orderView } from "./dataset/extents.ts";
export { deal, Order, parseState, resolveOrder, stateOf } from "./order/mod.ts";
export type { ExtentTable, Located, OrderOptions, OrderState, OrderView, ResolvedOrder } from "./order/types.ts";
