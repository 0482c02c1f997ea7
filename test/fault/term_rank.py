"""A rank that ends as examples/deepseek/train.py does on SIGTERM: the step is finished, all ranks stop at the same one.

    python term_rank.py '{"rank": r, "peer": fd of a socket to the other rank, "folder": …, "source": …, "state": …,
                          "handler": true}'

One JSON line a step in `steps-RANK`, the state in `state-RANK` at the end. The socket is what an all-reduce is for two.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from athanor.numpy import Loader


def main() -> None:
    told = json.loads(sys.argv[1])
    stop = False

    def on_sigterm(signum: int, frame: object) -> None:
        nonlocal stop
        stop = True

    if told["handler"]:
        signal.signal(signal.SIGTERM, on_sigterm)
    folder, rank = Path(told["folder"]), told["rank"]
    peer = socket.socket(fileno=told["peer"])
    with (
        (folder / f"steps-{rank}").open("a", buffering=1) as log,
        Loader(
            told["source"], batch_size=6, columns=["id"], rank=rank, world_size=2, state=told["state"], timeout=20
        ) as loader,
    ):
        for batch in loader:
            log.write(json.dumps([int(i) for i in batch["id"]]) + "\n")
            time.sleep(0.05)
            peer.sendall(b"1" if stop else b"0")
            if peer.recv(1) == b"1" or stop:
                break
        with (folder / f"state-{rank}").open("w") as file:
            json.dump(loader.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
    # Python puts the default back at its end: one more SIGTERM would then turn exit code 0 into 143.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if told["handler"] else signal.SIG_DFL)


if __name__ == "__main__":
    main()
