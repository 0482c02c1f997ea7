// Lays out the HDF5 library for the agent: dist/hdf5/ holds h5wasm's Node build with its WebAssembly taken out of the .js (so that
// a thread compiles it once, however often it begins anew), one folder a filter plugin named by its filter id (HDF5 opens every
// file of a plugin folder), and their licences. Lazily loaded by src/formats/hdf5/library.ts.
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";
import { patchHdf5 } from "./patch-hdf5.mjs";

/** Registered HDF5 filter ids and the plugins that undo them. */
const PLUGINS = {
  307: "bz2",
  32000: "lzf",
  32001: "blosc",
  32004: "lz4",
  32008: "bshuf",
  32013: "zfp",
  32015: "zstd",
  32019: "jpeg",
  32022: "bitgroom",
  32023: "bitround",
  32026: "blosc2",
};

/** The licences of h5wasm and HDF5 ask for it. */
const CHANGES = `hdf5.mjs and hdf5.wasm are h5wasm 0.10.3 (NIST) with HDF5 2.0.0 (The HDF Group), changed by Athanor in December 2026: the WebAssembly was
taken out of the script, and refuses chunks that hold fewer bytes than they should (H5D__chunk_lock, H5Z__filter_scaleoffset).
`;

export function buildHdf5(root, packaged) {
  const h5wasm = join(root, "node_modules", "h5wasm");
  const plugins = join(root, "node_modules", "h5wasm-plugins");
  const from = join(h5wasm, "dist", "node", "hdf5_util.js");
  const to = join(root, "dist", "hdf5");
  const own = [import.meta.filename, join(import.meta.dirname, "patch-hdf5.mjs")];
  const newest = Math.max(...[from, ...own].map((path) => statSync(path).mtimeMs));
  if (!existsSync(join(to, "done")) || statSync(join(to, "done")).mtimeMs < newest) {
    rmSync(to, { recursive: true, force: true });
    mkdirSync(to, { recursive: true });
    const { script, wasm } = split(readFileSync(from, "utf8"));
    writeFileSync(join(to, "hdf5.mjs"), script);
    writeFileSync(join(to, "hdf5.wasm"), patchHdf5(wasm));
    for (const [id, name] of Object.entries(PLUGINS)) {
      mkdirSync(join(to, id));
      copyFileSync(join(plugins, "plugins", `libH5Z${name}.so`), join(to, id, `libH5Z${name}.so`));
    }
    copyFileSync(join(h5wasm, "LICENSE.txt"), join(to, "LICENSE-h5wasm.txt"));
    copyFileSync(join(plugins, "LICENSE"), join(to, "LICENSE-h5wasm-plugins.txt"));
    copyFileSync(join(plugins, "COPYING"), join(to, "COPYING-hdf5-plugins.txt"));
    writeFileSync(join(to, "CHANGES.txt"), CHANGES);
    writeFileSync(join(to, "done"), "");
  }
  rmSync(join(packaged, "hdf5"), { recursive: true, force: true });
  cpSync(to, join(packaged, "hdf5"), { recursive: true });
}

/** Emscripten's SINGLE_FILE output: the WebAssembly is one string literal of characters whose codes are the inverted bytes. */
function split(text) {
  const call = "binaryDecode('";
  const begin = text.indexOf(call);
  if (begin < 0 || text.indexOf(call, begin + 1) >= 0)
    throw new Error("h5wasm: the embedded WebAssembly is not where it was");
  let end = begin + call.length;
  while (text[end] !== "'") end += text[end] === "\\" ? 2 : 1;
  const literal = runInNewContext(text.slice(begin + call.length - 1, end + 1));
  const wasm = Uint8Array.from(literal, (character) => (~character.charCodeAt(0) >> 8) & character.charCodeAt(0));
  if (!WebAssembly.validate(wasm)) throw new Error("h5wasm: the embedded WebAssembly does not come out whole");
  return { script: `${text.slice(0, begin)}null${text.slice(end + 2)}`, wasm };
}
