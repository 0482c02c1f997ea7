/** Tunables of the Lustre client that are looked at, and what they should be at least. After what sites and vendors publish. */
import type { FindingId } from "./findings.ts";
import { typeOf } from "../lustre/nids.ts";
import type { Release } from "./release.ts";

export interface Tunable {
  id: FindingId;
  /** Below /sys/fs/lustre, `FS` for the name of the file system. */
  file: string;
  /** As `lctl` names it. */
  name: string;
  /** `nets`: over which the OSTs are reached. */
  wrong: (value: number, nets: readonly string[]) => boolean;
  /** Of the client; before it, the value is as it should be. @default any */
  since?: Release;
  /** What to set; `undefined`: no line, the site has to think. */
  value: string | undefined;
  what: string;
  why: string;
  risk: string;
}

const MIB = 2 ** 20;

export const TUNABLES: readonly Tunable[] = [
  {
    id: "tunable-rpcs-in-flight",
    file: "osc/FS-OST*/max_rpcs_in_flight",
    name: "osc.FS-OST*.max_rpcs_in_flight",
    wrong: (value) => value < 16,
    value: "32",
    what: "few requests at a time to each OST",
    why: "an agent has up to 4 reads of 8 to 16 MiB under way at each OST: 8 to 16 requests of 4 MiB",
    risk: "more load on the servers from each client, and some MiB of memory an OST",
  },
  {
    id: "tunable-mdc-rpcs",
    file: "mdc/FS-MDT*/max_rpcs_in_flight",
    name: "mdc.FS-MDT*.max_rpcs_in_flight",
    wrong: (value) => value < 8,
    value: "64",
    what: "few requests at a time to the metadata servers",
    why: "opens and stats of many ranks wait for one another",
    risk: "more load on the metadata server; max_mod_rpcs_in_flight must stay below it",
  },
  {
    id: "tunable-pages-per-rpc",
    file: "osc/FS-OST*/max_pages_per_rpc",
    name: "osc.FS-OST*.max_pages_per_rpc",
    wrong: (value) => value < 1024,
    value: "1024",
    what: "requests of less than 4 MiB",
    why: "a read of 8 MiB falls into more requests than needed",
    risk: "none known; servers refuse more than their brw_size",
  },
  {
    id: "tunable-dirty",
    file: "osc/FS-OST*/max_dirty_mb",
    name: "osc.FS-OST*.max_dirty_mb",
    wrong: (value) => value < 64,
    value: "512",
    what: "little room for data that is still to be written",
    why: "checkpoints wait for the servers instead of for memory",
    risk: "up to so much memory an OST, and more to lose when a node crashes before it is written",
  },
  {
    id: "tunable-read-ahead-file",
    file: "llite/FS-*/max_read_ahead_per_file_mb",
    name: "llite.FS-*.max_read_ahead_per_file_mb",
    wrong: (value) => value < 16,
    value: "64",
    what: "little read-ahead in a file",
    why: "programs that read small pieces in file order (tar, safetensors, checkpoints) wait for each; Athanor's own reads do not need it",
    risk: "more bytes than wanted for programs that read runs and jump",
  },
  {
    id: "tunable-read-ahead",
    file: "llite/FS-*/max_read_ahead_mb",
    name: "llite.FS-*.max_read_ahead_mb",
    wrong: (value) => value < 64,
    value: "256",
    what: "little read-ahead for the whole node",
    why: "the readers of a node share it",
    risk: "so much memory of the node",
  },
  {
    id: "tunable-hybrid-io",
    file: "llite/FS-*/hybrid_io",
    name: "llite.FS-*.hybrid_io",
    wrong: (value) => value === 0,
    // 2.16 has the code, off by default.
    since: [2, 17, 0],
    value: undefined,
    what: "hybrid I/O is switched off",
    why: "reads of 8 MiB would go direct and carry exactly what is wanted, without filling the client's cache",
    risk: "reported to leave writes hanging with servers older than 2.17: find out first why it was switched off",
  },
  {
    id: "tunable-hybrid-threshold",
    file: "llite/FS-*/hybrid_io_read_threshold_bytes",
    name: "llite.FS-*.hybrid_io_read_threshold_bytes",
    wrong: (value) => value > 16 * MIB,
    value: String(8 * MIB),
    what: "only very large reads go direct",
    why: "Athanor reads 8 MiB at a time, 16 at most to reach the threshold; below it reads fill the client's cache and set off read-ahead",
    risk: "reads of that size by other programs are not cached any more",
  },
  {
    id: "tunable-open-cache",
    file: "llite/FS-*/opencache_threshold_count",
    name: "llite.FS-*.opencache_threshold_count",
    wrong: (value) => value === 0,
    value: "5",
    what: "the client forgets a file as soon as it is closed",
    why: "a loader that opens a file for each sample asks the metadata server twice a sample; Athanor opens a shard once",
    risk: "a lock on the metadata server for each file that was opened often",
  },
  {
    id: "tunable-checksums",
    file: "osc/FS-OST*/checksums",
    name: "osc.FS-OST*.checksums",
    wrong: (value, nets) => value === 0 && nets.some((net) => typeOf(net) === "tcp"),
    value: "1",
    what: "data goes over TCP without checksums",
    why: "a bit that flips on the way is not seen; formats with a CRC of their own still see it",
    risk: "some CPU for every byte",
  },
];
