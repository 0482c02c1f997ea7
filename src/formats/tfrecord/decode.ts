/**
 * Decoding of TFRecord blocks: raw bytes in kernel memory → stored rows, by one kernel call.
 *
 * @example
 * const planBytes = compilePlan(kernels, planAt, columns);
 * const { rows, truncated } = decode(kernels, { raw, rawBytes, firstRecord: 0, records, rows: rowsAt, plan: planAt, … });
 */
import type { AthanorError } from "../../base/errors.ts";
import type { KernelFault, Kernels } from "../../kernels/kernels.ts";
import { PLAN_COLUMN, PLAN_FEATURE, PLAN_HEADER } from "../../kernels/assembly/layout.ts";
import type { DecodeReport, DecodeRequest, StoredColumn } from "../types.ts";
import { faultError } from "./faults.ts";
import { encodePlan } from "./plan.ts";

/** Writes the plan of `columns` at `at`; returns its bytes (a few hundred for a handful of columns). */
export function compilePlan(kernels: Kernels, at: number, columns: readonly StoredColumn[]): number {
  const bytes = encodePlan(columns);
  new Uint8Array(kernels.memory.buffer, at, bytes.length).set(bytes);
  return bytes.length;
}

/** Throws the first fault as an error with file, record, byteOffset and cause; rows of records before it are written. */
export function decode(kernels: Kernels, request: DecodeRequest): DecodeReport {
  const { rows, truncated, fault } = kernels.decodeExamples(request);
  if (fault !== undefined) throw decodeFault(kernels, request, fault);
  return { rows, truncated };
}

/** A fault of decodeExamples as an error; `place`: of the record that the kernel counts as 0. */
export function decodeFault(
  kernels: Kernels,
  place: Pick<DecodeRequest, "file" | "firstRecord" | "fileOffset" | "plan">,
  fault: KernelFault,
): AthanorError {
  const feature = fault.column < 0 ? undefined : featureOf(kernels, place.plan, fault.column);
  return faultError(fault, { ...place, feature });
}

function featureOf(kernels: Kernels, plan: number, number: number): string | undefined {
  const view = new DataView(kernels.memory.buffer);
  const u32 = (at: number): number => view.getUint32(at, true);
  const features = u32(plan);
  for (let f = 0; f < features; f++) {
    const feature = plan + PLAN_HEADER + f * PLAN_FEATURE;
    for (let c = u32(feature + 8); c < u32(feature + 8) + u32(feature + 12); c++) {
      if (u32(plan + PLAN_HEADER + features * PLAN_FEATURE + c * PLAN_COLUMN + 12) !== number) continue;
      const from = plan + u32(feature);
      return new TextDecoder().decode(new Uint8Array(kernels.memory.buffer).slice(from, from + u32(feature + 4)));
    }
  }
  return undefined;
}
