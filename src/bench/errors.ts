/** Errors of the benchmarks. */
import { defineError } from "../base/errors.ts";

/** No Python that can run the clients, or a tool that a measurement needs is missing. */
export const BenchEnvironment = defineError("ATH_BENCH_ENVIRONMENT", 3);
/** A rank process failed, ended or did not answer in time. */
export const BenchRank = defineError("ATH_BENCH_RANK", 1);
/** The data set cannot be used by the contenders asked for. */
export const BenchData = defineError("ATH_BENCH_DATA", 1);
/** The file system has no room, or too little, for what `bench storage` writes. */
export const BenchRoom = defineError("ATH_BENCH_ROOM", 3);
/** A call to the storage that is measured does not return. */
export const BenchSilent = defineError("ATH_BENCH_SILENT", 3);
