/** TFRecord of tf.train.Example, plain, gzip or zlib, as a `Format`. */
import type { RowFormat } from "../types.ts";
import { columns } from "./columns.ts";
import { compilePlan, decode } from "./decode.ts";
import { detect } from "./detect.ts";
import { index } from "./index.ts";
import { survey } from "./survey.ts";

export const tfrecord: RowFormat = {
  name: "tfrecord",
  kind: "rows",
  columns: { name: "tfrecord", kind: "columns", columns },
  detect,
  index: ({ object }, { kernels, progress, onBad }) => index(object, kernels, progress, onBad),
  compilePlan,
  decode,
  survey,
};
