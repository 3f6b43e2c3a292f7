"""What packing would save, of answers and of heartbeats: bytes, and processor of reading them.

    python -m tests.tools.bench.packed

Answers in one record per response partition and batch; heartbeats of members of one program in one
record. Bytes are those of key, value and of what the log adds to a record; the processor is
Python's alone.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from coordlib.core.wire import api, codec
from tests.tools.bench.figures import tell, tell_machine

COUNT: Final = 1_000
REPEATS: Final = 20
#: Lengths, offset and time of a record in a batch of the log.
OVERHEAD: Final = 10
CLIENT: Final = "host-12-4711-abcd1234"
ROWS: Final = msgspec.json.Decoder(list[tuple[str, str, int]])
PARTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def best_us(work: Callable[[], object]) -> float:
    """Microseconds of the processor for each of COUNT, the best of some turns."""
    took_s = []
    for _ in range(REPEATS):
        began_s = time.process_time()
        work()
        took_s.append(time.process_time() - began_s)
    return round(min(took_s) / COUNT * 1e6, 3)


def answers() -> dict[str, float]:
    """Of commits, to a client that one of them is for."""
    told = [
        api.OffsetCommitResponse(
            id=f"{n:016x}-{n}", client=CLIENT, group=f"load-a1b2c3-{n // 10}", cause=f"r1-{n}"
        )
        for n in range(COUNT)
    ]
    keys, values = [each.group.encode() for each in told], [codec.encode(each) for each in told]
    packed = b"[" + b",".join(values) + b"]"

    def by_key() -> None:
        for key, value in zip(keys, values, strict=True):
            if key == keys[0]:
                codec.decode_response(value)

    single = sum(len(key) + len(value) + OVERHEAD for key, value in zip(keys, values, strict=True))
    return {
        "bytes_each": round(single / COUNT, 1),
        "bytes_packed": round(len(packed) / COUNT, 1),
        "us_by_key": best_us(by_key),
        "us_packed_split": best_us(lambda: PARTS.decode(packed)),
        "us_packed_decoded": best_us(
            lambda: [codec.decode_response(bytes(part)) for part in PARTS.decode(packed)]
        ),
    }


def heartbeats() -> dict[str, float]:
    """As the job reads them."""
    member = f"{CLIENT}-YjVo5al4-1-42"
    beat = api.Heartbeat(
        v=1, id=f"{7:016x}-900", client=CLIENT, group="load-a1b2c3-17", reply=3, generation=7,
        member=member,
    )  # fmt: skip
    value = codec.encode(beat)
    rows = msgspec.json.encode([(beat.group, member, 7)] * COUNT)
    return {
        "bytes_each": len(value) + len(beat.group) + OVERHEAD,
        "bytes_in_one": round(len(rows) / COUNT, 1),
        "us_decoded": best_us(lambda: [codec.decode_request(value) for _ in range(COUNT)]),
        "us_in_one": best_us(lambda: ROWS.decode(rows)),
    }


def main() -> int:
    tell_machine("packed")
    tell("packed", "answers", **answers())
    tell("packed", "heartbeats", **heartbeats())
    progress = codec.encode(api.Progress(shard=3, offset=123_456_789, time_ms=1_795_243_200_000))
    decoded_us = best_us(lambda: [codec.decode_response(progress) for _ in range(COUNT)])
    tell("packed", "progress", bytes_each=len(progress) + OVERHEAD, us_decoded=decoded_us)
    return 0


if __name__ == "__main__":
    sys.exit(main())
