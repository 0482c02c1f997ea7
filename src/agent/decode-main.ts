/** Entry of the agent's decode threads: `agent-decode.js`. The thread of the HDF5 library, which they start, is in the agent's file. */
import { registerThreadFile } from "../base/threads.ts";
import { run } from "../feed/decode-thread.ts";

registerThreadFile("hdf5", "agent.js");
run();
