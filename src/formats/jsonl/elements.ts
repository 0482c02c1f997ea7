/**
 * Where an element of a JSON array ends, by its brackets and quotes alone. It can stop at any byte and go on when more are there.
 *
 * @example
 * const matcher = new ElementMatcher();
 * matcher.end(Buffer.from('{"a":"}"},{'), 0, 11); // 9; −1: the element goes on behind the last byte
 */
export class ElementMatcher {
  private at = 0;
  private depth = 0;
  private inText = false;
  private begun = false;

  /** The next element. */
  reset(): void {
    this.depth = 0;
    this.inText = false;
    this.begun = false;
  }

  /** End of the element that begins at `begin`; asked again, it goes on where it stopped. */
  end(bytes: Uint8Array, begin: number, to: number): number {
    if (!this.begun) {
      this.begun = true;
      this.at = begin;
    }
    let { at, depth, inText } = this;
    while (at < to) {
      const byte = bytes[at]!;
      if (inText) {
        if (byte === 0x22) {
          inText = false;
        } else if (byte === 0x5c) {
          // The byte behind it belongs to it.
          if (at + 1 >= to) break;
          at++;
        }
        at++;
        continue;
      }
      if (byte === 0x22) inText = true;
      else if (byte === 0x7b || byte === 0x5b) depth++;
      else if (byte === 0x7d || byte === 0x5d) {
        // A number or word ends where the array does.
        if (depth === 0) return at;
        if (--depth === 0) return at + 1;
      } else if (byte === 0x2c && depth === 0) return at;
      at++;
    }
    Object.assign(this, { at, depth, inText });
    return -1;
  }

  /** The bytes that were looked at lie `by` further to the front now. */
  moved(by: number): void {
    this.at -= by;
  }
}
