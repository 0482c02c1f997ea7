/** TFRecord of tf.train.Example, plain, gzip or zlib, as a `Format`. */
import type { Format } from "../types.ts";
import { compilePlan, decode } from "./decode.ts";
import { detect } from "./detect.ts";
import { index } from "./index.ts";
import { survey } from "./survey.ts";

export const tfrecord: Format = { name: "tfrecord", detect, index, compilePlan, decode, survey };
