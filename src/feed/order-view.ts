/** A view of an index: what a batch holds, the view's fingerprint, and what the order needs to know of it. */
import { orderView } from "../dataset/extents.ts";
import { viewFingerprint } from "../dataset/fingerprint.ts";
import type { DatasetIndex } from "../dataset/types.ts";
import type { OrderView } from "../order/types.ts";
import { viewLayout } from "./columns.ts";
import type { ViewLayout, ViewRequest } from "./columns.ts";

/** Name of the one source in state and proof. */
export const SOURCE_NAME = "data";

export async function viewOf(
  index: DatasetIndex,
  request: ViewRequest,
): Promise<{ view: OrderView; layout: ViewLayout }> {
  const layout = viewLayout(index.schema, request, index.root);
  const spec = {
    columns: layout.columns.map((column) => column.name),
    max_length: request.maxLength,
    sample_rule: "record",
    tokenizer: null,
  };
  const view = await orderView(index, viewFingerprint(index.fingerprint, spec), layout.nominalBytes);
  return { view, layout };
}
