#!/usr/bin/env python3
"""Real text on this machine → a byte-level BPE tokeniser → TFRecord shards in the story's schema.

    python make_corpus.py --out DIR                       Python's own library and its docs
    python make_corpus.py --out DIR --source FOLDER       a folder of .txt, .md, .rst, .py … files

Writes `DIR/tokenizer.json` and `DIR/data/train_NNNNN.tfrecord`: records are tf.train.Example with `input_ids` and
`attention_mask`, int64 [max_length] (1 real token, 0 padding). Documents are laid end to end with an end-of-text
token between them and cut into samples; only the last sample is padded. No TensorFlow: framing and masked CRC32C
are done here (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).

`--ids` puts a unique sample number into the first four tokens of each sample (base 251, lowest digit first), so that
a test can count lost and repeated samples from what the trainer really got.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import struct
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAD, EOS = 0, 1
ID_BASE, ID_TOKENS = 251, 4
TEXT_SUFFIXES = {".py", ".txt", ".md", ".rst", ".html", ".c", ".h", ".js", ".ts", ".json", ".tex"}

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def texts(source: Path, limit: int) -> Iterator[str]:
    """Readable text files below `source`, in an order that mixes folders, the same on every run."""
    files = []
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(f for f in folders if f not in ("site-packages", "__pycache__") and not f.startswith("."))
        files += [Path(folder, name) for name in names if Path(name).suffix in TEXT_SUFFIXES]
    files.sort(key=lambda path: hashlib.md5(str(path.relative_to(source)).encode()).digest())
    taken = 0
    for path in files:
        if taken >= limit:
            return
        try:
            text = path.read_text(encoding="utf-8")[: limit - taken]
        except (OSError, UnicodeDecodeError):
            continue  # not text, or not ours to read
        if text.strip():
            taken += len(text.encode())
            yield text


def tokenise(documents: list[str], vocabulary: int, save_to: Path) -> Ints:
    """Trains a byte-level BPE on the documents and returns all of them as one stream of token ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    write_atomically(save_to, [tokenizer.to_str().encode()])
    parts = [np.array([*encoding.ids, EOS], np.int64) for encoding in tokenizer.encode_batch(documents)]
    return np.concatenate(parts)


def pack(stream: Ints, max_length: int, with_ids: bool, samples: int | None) -> tuple[Ints, Ints]:
    """Cuts the stream into rows: (ids [n, max_length], mask [n, max_length])."""
    head = ID_TOKENS if with_ids else 0
    room = max_length - head
    if room < 1:
        raise SystemExit(f"--max_length must be above {head}, got {max_length}")
    count = -(-len(stream) // room)
    if samples is not None:
        if count < samples:
            raise SystemExit(f"the text gives {count} samples, --samples asks for {samples}: raise --megabytes")
        count = samples
    body = np.full(count * room, PAD, np.int64)
    real = stream[: count * room]
    body[: len(real)] = real
    ids = np.empty((count, max_length), np.int64)
    mask = np.ones((count, max_length), np.int64)
    ids[:, head:] = body.reshape(count, room)
    mask[:, head:] = (np.arange(count * room) < len(real)).reshape(count, room)
    for digit in range(head):
        ids[:, digit] = np.arange(count) // ID_BASE**digit % ID_BASE
    return ids, mask


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def packed_rows(rows: Ints) -> list[bytes]:
    """Each row of non-negative values < 2^35 as packed varints."""
    size = np.ones_like(rows)
    for k in range(1, 5):
        size += rows >= 1 << 7 * k
    ends = np.cumsum(size.ravel())
    starts = ends - size.ravel()
    flat, flat_size = rows.ravel(), size.ravel()
    out = np.zeros(int(ends[-1]), np.uint8)
    for k in range(int(size.max())):
        has = flat_size > k
        more = np.where(flat_size[has] > k + 1, 128, 0)
        out[starts[has] + k] = (flat[has] >> 7 * k & 127) | more
    data, row_ends = out.tobytes(), ends[rows.shape[1] - 1 :: rows.shape[1]]
    return [data[a:b] for a, b in zip([0, *row_ends[:-1]], row_ends)]


def examples(ids: Ints, mask: Ints) -> list[bytes]:
    """Rows as serialised tf.train.Example."""

    def feature(
        name: bytes, values: bytes
    ) -> bytes:  # Features.feature entry { key, Feature { Int64List { values } } }
        return field(1, field(1, name) + field(2, field(3, field(1, values))))

    rows = zip(packed_rows(ids), packed_rows(mask))
    return [field(1, feature(b"input_ids", a) + feature(b"attention_mask", b)) for a, b in rows]


def crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


def masked_crcs(parts: list[bytes]) -> npt.NDArray[np.uint32]:
    """Masked CRC32C of every part. All parts advance together, a byte a turn; longest first: live ones are a prefix."""
    table = crc_table()
    length = np.array([len(p) for p in parts])
    by_length = np.argsort(-length, kind="stable")
    padded = np.zeros((int(length.max()), len(parts)), np.uint8)
    for column, part in enumerate(by_length):
        padded[: length[part], column] = np.frombuffer(parts[part], np.uint8)
    crc = np.full(len(parts), 0xFFFFFFFF, np.uint32)
    live = np.searchsorted(-length[by_length], -np.arange(len(padded)), side="left")  # parts longer than the turn
    for turn, n in enumerate(live):
        crc[:n] = table[(crc[:n] ^ padded[turn, :n]) & 255] ^ crc[:n] >> 8
    crc ^= np.uint32(0xFFFFFFFF)
    rotated = crc >> 15 | crc << 17
    out = np.empty(len(parts), np.uint32)
    out[by_length] = rotated + np.uint32(0xA282EAD8)
    return out


def frames(records: list[bytes]) -> Iterator[bytes]:
    """TFRecord: u64 length, masked CRC of the length, payload, masked CRC of the payload."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    for record, length, a, b in zip(records, lengths, masked_crcs(lengths), masked_crcs(records)):
        yield length + struct.pack("<I", a) + record + struct.pack("<I", b)


def write_atomically(path: Path, parts: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--source", type=Path, default=Path(sysconfig.get_paths()["stdlib"]), help="folder of text")
    parser.add_argument("--megabytes", type=float, default=8, help="text to read at most")
    parser.add_argument("--max_length", type=int, default=512, help="tokens a sample")
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--samples", type=int, help="exactly so many samples")
    parser.add_argument("--vocab", type=int, default=8192, help="size of the vocabulary")
    parser.add_argument("--ids", action="store_true", help="the first four tokens of a sample hold its number")
    args = parser.parse_args()
    if not args.source.is_dir():
        raise SystemExit(f"--source must be a folder, got {args.source}")
    documents = list(texts(args.source, int(args.megabytes * 1e6)))
    if not documents:
        raise SystemExit(f"no text files ({', '.join(sorted(TEXT_SUFFIXES))}) below {args.source}")
    (args.out / "data").mkdir(parents=True, exist_ok=True)
    stream = tokenise(documents, args.vocab, args.out / "tokenizer.json")
    ids, mask = pack(stream, args.max_length, args.ids, args.samples)
    if len(ids) < args.shards:
        raise SystemExit(f"the text gives {len(ids)} samples, too few for {args.shards} shards")
    for shard, rows in enumerate(np.array_split(np.arange(len(ids)), args.shards)):
        path = args.out / "data" / f"train_{shard:05d}.tfrecord"
        write_atomically(path, frames(examples(ids[rows], mask[rows])))
    size = sum(f.stat().st_size for f in (args.out / "data").glob("*.tfrecord"))
    facts = {"documents": len(documents), "characters": sum(map(len, documents)), "tokens": len(stream)}
    print(json.dumps({**facts, "samples": len(ids), "shards": args.shards, "bytes": size, "source": str(args.source)}))


if __name__ == "__main__":
    main()
