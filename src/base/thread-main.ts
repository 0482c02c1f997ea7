// Entry of every worker thread outside the bundle: loads the module named in workerData and runs it.
import { workerData } from "node:worker_threads";

const { module } = workerData as { module: string };
const { run } = (await import(module)) as { run: () => void };
run();
