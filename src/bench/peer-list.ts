/**
 * The list of contenders of `athanor bench peers`, in the order of the table: what each reads, with which environment, and
 * how it is called. The loaders themselves: python/src/athanor/bench/peers/loaders.py.
 */
import { Usage } from "../base/usage.ts";
import type { Contender } from "./contenders.ts";

export interface PeerContender extends Contender {
  /** Folder of the data, as peers/data.py names it; `memmap` is made from `tfrecord`. */
  data: string;
  /** DataLoader processes of a rank. */
  workers: number;
  /** Distributions that a result depends on. */
  packages: string[];
  /** `tf`: the environment with TensorFlow. */
  environment: "peers" | "tf";
  /** What it is and how it is used, for the foot of the table. */
  about: string;
}

type Entry = Partial<Omit<PeerContender, "loader">> & { loader: string; data: string; about: string };

const WORKERS = "the same with two worker processes a rank";

const LIST: readonly Entry[] = [
  {
    name: "memmap_batch",
    loader: "memmap_batch",
    data: "memmap",
    about: "PyTorch over a memory map of decoded rows (int32 ids, int8 mask), one fancy index a batch: the floor",
  },
  { loader: "memmap", data: "memmap", about: "the same map, one sample a `__getitem__`, default collate" },
  {
    loader: "athanor",
    name: "athanor window",
    mode: "window",
    data: "tfrecord",
    about: "TFRecord in place, every CRC checked, shuffled in windows of a quarter of the data, decoded all the time",
  },
  {
    loader: "athanor",
    name: "athanor global",
    mode: "global",
    data: "tfrecord",
    about: "the same, held in memory and decoded once",
  },
  { loader: "megatron", data: "megatron", about: "`.bin`/`.idx` as Megatron's IndexedDataset reads them, map-style" },
  {
    loader: "tfdata",
    data: "tfrecord",
    environment: "tf",
    packages: ["tensorflow-cpu"],
    about: "interleaved shards, a buffer of 10 000 shuffled, `parse_example` on batches, AUTOTUNE; CRC checked",
  },
  {
    loader: "tfrecord",
    data: "tfrecord",
    packages: ["tfrecord"],
    about: "the `tfrecord` package: MultiTFRecordDataset, a queue of 2 000 shuffled; no CRC",
  },
  {
    loader: "litdata",
    data: "litdata",
    packages: ["litdata"],
    about: "LitData: StreamingDataset(shuffle=True) in place, StreamingDataLoader",
  },
  {
    loader: "mosaic",
    data: "mds_bytes",
    packages: ["mosaicml-streaming"],
    about: "MosaicML Streaming: StreamingDataset(shuffle=True) in place, StreamingDataLoader",
  },
  { loader: "mosaic", workers: 2, data: "mds_bytes", packages: ["mosaicml-streaming"], about: WORKERS },
  {
    loader: "webdataset",
    data: "webdataset",
    packages: ["webdataset"],
    about: "WebDataset: shards shuffled, a buffer of 2 000",
  },
  { loader: "webdataset", workers: 2, data: "webdataset", packages: ["webdataset"], about: WORKERS },
  {
    loader: "grain",
    data: "arrayrecord",
    packages: ["grain", "array-record"],
    about: "Grain over ArrayRecord, uncompressed, group size 1: MapDataset, shuffled, 2 read threads",
  },
  {
    loader: "hf_map",
    data: "arrow",
    packages: ["datasets"],
    about: "HF datasets from `save_to_disk`, map-style, torch format",
  },
  {
    loader: "hf_stream",
    data: "parquet",
    packages: ["datasets", "pyarrow"],
    about: "HF datasets streaming over Parquet, a buffer of 2 000 shuffled, torch format",
  },
];

export const PEERS: readonly PeerContender[] = LIST.map(
  ({ loader, data, about, mode, workers = 0, packages = [], environment = "peers", name }) => ({
    name: name ?? (workers > 0 ? `${loader}:${workers}` : loader),
    loader,
    mode,
    data,
    workers,
    packages,
    environment,
    about,
  }),
);

/** The same batch again and again: what the process itself costs. Runs beside the others, is no row. */
export const NOTHING: PeerContender = {
  name: "null",
  loader: "null",
  mode: undefined,
  data: "memmap",
  workers: 0,
  packages: [],
  environment: "peers",
  about: "",
};

/** `names`: a comma list of names or of loaders (`athanor`: both modes), or `all`. */
export function peerContenders(names: string): PeerContender[] {
  const wanted = names.split(",").map((name) => name.trim());
  if (wanted.includes("all")) return [...PEERS];
  const unknown = wanted.find((name) => !PEERS.some((peer) => peer.name === name || peer.loader === name));
  if (unknown !== undefined) {
    const known = PEERS.map(({ name }) => name).join(", ");
    throw new Usage(`contenders must be of ${known}, got ${JSON.stringify(unknown)}`);
  }
  return PEERS.filter((peer) => wanted.includes(peer.name) || (wanted.includes(peer.loader) && peer.workers === 0));
}
