/** Entry of the agent's I/O threads: `agent-io.js`. */
import { run } from "../storage/io-thread.ts";

run();
