/** Errors of layouts and of the tools that tell them. Each code has a section in docs/reference/errors.md. */
import { defineError } from "../base/errors.ts";

/** Bytes or text that should tell a layout and do not. */
export const LayoutInvalid = defineError("ATH_LAYOUT_INVALID", 1);
/** A layout could not be read: no tool, no permission, a metadata server that does not answer. */
export const LayoutUnreadable = defineError("ATH_LAYOUT_UNREADABLE", 3);
/** The striping of a folder could not be set, or is not what was asked for. */
export const LayoutNotApplied = defineError("ATH_LAYOUT_NOT_APPLIED", 3);
/** A file could not be laid elsewhere, or lies elsewhere than it was asked to. */
export const LayoutNotMoved = defineError("ATH_LAYOUT_NOT_MOVED", 3);
