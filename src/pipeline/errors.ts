import { defineError } from "../base/errors.ts";

/** No Python that can run the demo. */
export const DemoPython = defineError("ATH_DEMO_PYTHON", 3);
/** A step of the demo failed. */
export const DemoStep = defineError("ATH_DEMO_STEP", 1);
