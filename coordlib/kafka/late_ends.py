"""When the end of a transaction may come late, and the times that keep it from doing so.

An EndTxn that a client sent twice can end the *next* transaction half-way: the first one is held
up, the second commits, and the first arrives when the next transaction has begun. The broker cannot
tell the two apart, because both have the same producer id and epoch. KIP-890 gives every
transaction its own epoch, but librdkafka sends EndTxn version 1, without it. A new producer is the
cure from outside: `init_transactions` raises the epoch, and the broker refuses what is late.

When is it needed? librdkafka does not report that it sent EndTxn again: a closed connection is no
error for `error_cb`, and the call succeeds. But it waits before that, 80 % of `retry.backoff.ms` at
least, and 500 ms before it sends AddPartitionsToTxn again. So a transaction that was shorter sent
both once, and nothing of it can be late. It is doubtful from `DOUBTFUL_AFTER_MS` on.
"""

from typing import Final

#: A transaction that took this long, from its beginning to the answer of its end, is doubtful.
DOUBTFUL_AFTER_MS: Final = 400
#: 80 % of it is above DOUBTFUL_AFTER_MS: librdkafka varies it by 20 %.
RETRY_BACKOFF_MS: Final = 600
#: A smaller bound, by an option of the user's, would cut the backoff.
RETRY_BACKOFF_MAX_MS: Final = 1_000
#: The options of every transactional producer.
RETRY_OPTIONS: Final = {
    "retry.backoff.ms": RETRY_BACKOFF_MS,
    "retry.backoff.max.ms": RETRY_BACKOFF_MAX_MS,
}
