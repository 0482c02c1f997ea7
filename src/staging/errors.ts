/** Errors of copies and moves. Each code has a section in docs/reference/errors.md. */
import { defineError } from "../base/errors.ts";

/** Where a copy should go is no place for it: there already, inside the source, begun from other data. */
export const CopyTarget = defineError("ATH_COPY_TARGET", 2);
/** The source is not what it was when it was listed, copied or moved. */
export const CopySourceChanged = defineError("ATH_COPY_SOURCE_CHANGED", 1);
/** Files of the source are in an archive: reading one would bring it back, and wait for that. */
export const CopyReleased = defineError("ATH_COPY_RELEASED", 1);
/** What was read back is not what was written, or is not what lay there before a move. */
export const CopyDiffers = defineError("ATH_COPY_DIFFERS", 3);
/** No space or quota for a second copy. */
export const CopyNoRoom = defineError("ATH_COPY_NO_ROOM", 3);
/** The file system refused to write. */
export const CopyWrite = defineError("ATH_COPY_WRITE", 3);
/** A journal of a copy or of moves holds a line that cannot be read. */
export const JournalInvalid = defineError("ATH_COPY_JOURNAL", 1);
