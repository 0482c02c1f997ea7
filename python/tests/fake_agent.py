"""An agent of a few lines, for protocol errors that the real one never makes. Run through a `node` that is a script
(see conftest.py). Sample i of N = FAKE_SAMPLES is {"id": i, "input_ids": [i] * (i % 9), mask}; position p is p mod N,
and of source p mod (number of sources), whatever the weights. Epochs have N samples.

FAKE_FAULT: version | garbage | position | overwrite | nofd | mute | slow:SECONDS | die:BATCHES | start (exit at once)
"""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
from typing import Any

WIDTH = 8
SAMPLES = int(os.environ.get("FAKE_SAMPLES", "100"))
VIEW = os.environ.get("FAKE_VIEW", "0" * 32)
FAULT, _, AMOUNT = os.environ.get("FAKE_FAULT", "").partition(":")
RUN_DIR = sys.argv[sys.argv.index("--run-dir") + 1]
bells: dict[str, socket.socket] = {}


def lines(peer: socket.socket) -> Any:
    buffer = b""
    while data := peer.recv(65536):
        buffer += data
        *whole, buffer = buffer.split(b"\n")
        yield from (json.loads(line) for line in whole)
        yield None


def say(peer: socket.socket, message: dict[str, Any]) -> None:
    peer.sendall(json.dumps(message).encode() + b"\n")


def planned(state: Any, position: int, ramp: list[list[int]]) -> list[list[int]]:
    """[from, G] of the state up to the position, then what the ramp wants at each border."""
    found = [[int(s["from"]), s["G"]] for n, s in enumerate(state["segments"] if state else [])
             if n == 0 or int(s["from"]) < position] or [[0, ramp[0][1]]]  # fmt: skip
    for event in [position, *(begin for begin, _ in ramp if begin > position)]:
        begin, size = found[-1]
        border = begin + -(-(event - begin) // size) * size
        wanted = [g for at, g in ramp if at <= border][-1]
        if wanted != size:
            found = [*found[: -1 if border == begin else None], [border, wanted]]
    return found


class FakeSession:
    def __init__(self, peer: socket.socket, hello: dict[str, Any], messages: Any) -> None:
        self.peer, self.hello, self.messages = peer, hello, messages
        self.rows = hello["batch_size"]
        self.step = self.rows * hello["world"]
        base = -(-(128 + self.rows * 32) // 64) * 64
        sizes = [("id", "i64", 1, 8), ("input_ids", "i32", WIDTH, 4 * WIDTH), ("attention_mask", "prefix", WIDTH, 4)]
        self.columns = []
        for name, storage, width, size in sizes:
            self.columns.append({"name": name, "feature": name, "storage": storage, "width": width, "dtype": "int64",
                                 "scalar": width == 1, "offset": base, "bytes": size})  # fmt: skip
            base += -(-self.rows * size // 64) * 64
        self.slot_bytes = base
        self.position = int(hello["state"]["position"]) if hello["state"] else 0
        self.n = 1
        self.taken = 0  # steps since the session's start
        order = hello["order"]
        mix = hello["mix"] or {"sources": [{"name": "data"}]}
        self.sources = len(mix["sources"])
        batches = planned(hello["state"], self.position, order["ramp"] or [[0, order["global_batch"]]])
        shape = {"L": 1, "window": 1, "extent": 1, "shuffle": "window"}
        sources = [{"name": s["name"], "view": VIEW, "samples": str(SAMPLES), **shape} for s in mix["sources"]]
        weights = [65536 // self.sources] * self.sources
        segments = [{"from": str(begin), "sources": list(range(self.sources)), "weights": weights, "L": 1,
                     "last": order["last"], "G": size} for begin, size in batches]  # fmt: skip
        self.state = {"version": 1, "seed": order["seed"], "position": str(self.position), "sources": sources,
                      "segments": segments}  # fmt: skip
        say(peer, {"type": "view", "protocol": 2 if FAULT == "version" else 1, "version": "9.9.9", "pid": os.getpid(),
                   "samples": str(SAMPLES), "data": "", "view": VIEW, "columns": self.columns,
                   "slot_bytes": self.slot_bytes, "position": str(self.position), "state": self.state,
                   "sources": [{"name": s["name"], "samples": str(SAMPLES), "weight": w, "shuffle": "window",
                                "held": False, "lanes": 1, "window": 1, "extent": 1}
                               for s, w in zip(sources, weights)],
                   "epochs": {"last": order["last"], "spans": [[0, 0, 0, SAMPLES]], "batches": batches},
                   "warnings": []})  # fmt: skip

    def run(self) -> None:
        segment = next(message for message in self.messages if message)
        if FAULT == "nofd" and segment["path"] is None:
            say(self.peer, {"type": "error", "error": {"code": "ATH_SEGMENT_REFUSED", "message": "cannot open"}})
            return
        path = (
            os.path.join(RUN_DIR, segment["path"]) if segment["path"] else f"/proc/{segment['pid']}/fd/{segment['fd']}"
        )
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        if self.memory[16:32].hex() != segment["nonce"]:
            raise SystemExit("wrong nonce")
        self.slots = segment["slots"]
        name = os.urandom(4).hex()
        say(self.peer, {"type": "ready", "session": name})
        while name not in bells:
            time.sleep(0.001)
        bell = bells[name]
        random = self.hello["mode"] == "random"
        while True:
            at = 4096 + (self.n - 1) % self.slots * self.slot_bytes
            released = struct.unpack_from("<Q", self.memory, at + 64)[0]
            free = not random and released >= self.n - self.slots
            if free:
                self.publish(at, self.next_rows())
                self.wake(bell)
            elif not random:
                struct.pack_into("<Q", self.memory, 64, self.n - self.slots)
                if struct.unpack_from("<Q", self.memory, at + 64)[0] >= self.n - self.slots:
                    continue
            ready, _, _ = select.select([self.peer, bell], [], [], 0 if free else 5)
            if bell in ready and not bell.recv(4096):
                return
            if self.peer in ready and not self.control(bell):
                return
            self.wake(bell)

    def control(self, bell: socket.socket) -> bool:
        for message in self.messages:
            if message is None:
                return True
            if message["type"] == "seek":
                self.position, self.taken = int(message["position"]), 0
                say(self.peer, {"type": "seeked", "seq": self.n})
            elif message["type"] == "get":
                at = 4096 + (self.n - 1) % self.slots * self.slot_bytes
                self.publish(at, [(i, i, 1) for i in message["indices"]])
                self.wake(bell)
            elif message["type"] == "why" and FAULT != "mute":
                say(self.peer, {"type": "why", "text": "waiting for storage: reading /d/a at byte 0"})
            elif message["type"] == "stats":
                say(self.peer, {"type": "stats", "stats": {"reads": 1}})
            elif message["type"] == "close":
                return False
        return False

    def next_rows(self) -> list[tuple[int, int, int]]:
        """(position, sample, valid) of this rank's rows of the next step that the stride wants."""
        hello = self.hello
        while self.taken % hello["stride"] != hello["offset"]:
            self.advance()
        first = self.position + hello["rank"] * self.rows
        rows = [(p, p % SAMPLES, 1) for p in range(first, first + self.rows)]
        if hello["order"]["last"] == "pad":
            end = (self.position // SAMPLES + 1) * SAMPLES
            rows = [(min(p, end - 1), s if p < end else SAMPLES - 1, int(p < end)) for p, s, _ in rows]
        self.at = self.position
        self.advance()
        return rows

    def advance(self) -> None:
        last = self.hello["order"]["last"]
        end = (self.position // SAMPLES + 1) * SAMPLES
        self.position = min(self.position + self.step, end) if last == "pad" else self.position + self.step
        self.taken += 1

    def publish(self, at: int, rows: list[tuple[int, int, int]]) -> None:
        if FAULT == "slow" or FAULT == "mute":
            time.sleep(float(AMOUNT or 5))
        if FAULT == "die" and self.n > int(AMOUNT):
            os._exit(9)
        position = rows[0][0] if self.hello["mode"] == "random" else self.at + (FAULT == "position")
        for r, (p, sample, valid) in enumerate(rows):
            word = valid | p % self.sources << 1
            struct.pack_into("<QQQII", self.memory, at + 128 + r * 32, p, 7, sample, 0, word)
            length = sample % (WIDTH + 1)
            struct.pack_into("<q", self.memory, at + self.columns[0]["offset"] + 8 * r, sample)
            values = [sample] * length + [0] * (WIDTH - length)
            struct.pack_into(f"<{WIDTH}i", self.memory, at + self.columns[1]["offset"] + r * 4 * WIDTH, *values)
            struct.pack_into("<I", self.memory, at + self.columns[2]["offset"] + r * 4, length)
        padded = int(any(not valid for _, _, valid in rows))
        struct.pack_into("<QQIII", self.memory, at + 8, position, self.n, len(rows), padded, 0)
        struct.pack_into("<Q", self.memory, at, self.n + (self.slots if FAULT == "overwrite" else 0))
        self.n += 1

    def wake(self, bell: socket.socket) -> None:
        waiting = struct.unpack_from("<Q", self.memory, 128)[0]
        if 0 < waiting < self.n:
            bell.sendall(b"\1")


def serve(peer: socket.socket) -> None:
    messages = lines(peer)
    hello = next(message for message in messages if message)
    if hello["type"] == "bell":
        bells[hello["session"]] = peer
        return
    if FAULT == "garbage":
        peer.sendall(b"\xffnot json\n")
        return
    if hello["protocol"] != 1:
        say(
            peer, {"type": "error", "error": {"code": "ATH_PROTOCOL_MISMATCH", "message": f"{hello['protocol']} and 1"}}
        )
        return
    if hello["state"] and hello["state"]["seed"] != hello["order"]["seed"]:
        say(peer, {"type": "error", "error": {"code": "ATH_STATE_MISMATCH", "message": "seed differs"}})
        return
    try:
        FakeSession(peer, hello, messages).run()
    except OSError:
        pass  # the client is gone
    finally:
        peer.close()


def main() -> None:
    if FAULT == "start":
        sys.exit("cannot start: no such block")
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.join(RUN_DIR, "agent.sock"))
    server.listen(64)
    threading.Timer(120, lambda: os._exit(0)).start()  # no test needs longer
    while True:
        peer, _ = server.accept()
        threading.Thread(target=serve, args=(peer,), daemon=True).start()


if __name__ == "__main__":
    main()
