/** Errors of the benchmarks. */
import { defineError } from "../base/errors.ts";

/** No Python that can run the clients, or a tool that a measurement needs is missing. */
export const BenchEnvironment = defineError("ATH_BENCH_ENVIRONMENT", 3);
/** A rank process failed, ended or did not answer in time. */
export const BenchRank = defineError("ATH_BENCH_RANK", 1);
/** The data set cannot be used by the contenders asked for. */
export const BenchData = defineError("ATH_BENCH_DATA", 1);
