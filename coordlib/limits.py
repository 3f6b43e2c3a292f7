"""Every bound of an input, by name, with its precedent.  # INV-43

All sizes are bytes of the encoded form unless the name says otherwise; times are milliseconds.
"""

KIB = 1024
MIB = 1024 * KIB

NAME_LENGTH_MAX = 249  # Kafka's own limit for topic names; ours for groups and instances too
CLIENT_LENGTH_MAX = 150  # leaves room for "-<incarnation>-<shard>-<offset>" within NAME_LENGTH_MAX
MEMBER_ID_LENGTH_MAX = NAME_LENGTH_MAX
CORRELATION_ID_LENGTH_MAX = 64
REASON_LENGTH_MAX = 1_000  # KIP-800 cuts reasons at 255; ours may carry a stack trace's first line
PROTOCOL_NAME_LENGTH_MAX = 249
SPACE_LENGTH_MAX = 32  # names of spaces, which code alone makes

REQUEST_BYTES_MAX = 1 * MIB  # Kafka's default message.max.bytes
WORKER_MEMORY_BYTES = 1024 * MIB  # of a Python worker: spark.executor.memory's default, too
WORKER_MEMORY_BYTES_MIN = 64 * MIB  # with less a worker holds no batch of a few large requests
OUTPUT_BYTES_MAX = 8 * MIB  # max.message.bytes of the output topics
RECORD_BYTES_MAX = OUTPUT_BYTES_MAX - 256 * KIB  # a group's record; the rest: deadlines that begin
GROUP_BYTES_MAX = 4 * MIB  # a group's hard state: half of an output record, so both fit
NESTING_MAX = 32  # levels of brackets; a request has four
CONTROL_KEY_LENGTH_MAX = 64  # characters of a key's name in a control record; ours have 16
SIGNATURE_BYTES_MAX = 64  # Ed25519's (RFC 8032)
REJECTED_BYTES_KEPT = 64  # first bytes of an undecodable request, kept in its history event

PROTOCOLS_MAX = 32  # protocols offered by one member; Kafka's clients offer two
LEAVERS_MAX = 1_000  # members named in one LeaveGroup: a whole group
OFFSETS_PER_REQUEST_MAX = 10_000  # rows of an OffsetCommit or OffsetDelete; 1 MiB holds as many
OFFSETS_PER_EVENT_MAX = 10_000  # rows of one history event: below 6 MB with the longest names
FETCH_PARTITIONS_MAX = 25_000  # partitions named in one OffsetFetch
OFFSETS_PER_GROUP_MAX = 100_000  # offsets kept per group; a change of one writes the group's page
OFFSETS_BYTES_PER_GROUP_MAX = 16 * MIB  # 100,000 offsets without metadata, and half more
OFFSET_METADATA_LENGTH_MAX = 4_096  # offset.metadata.max.bytes: UTF-16 code units, as in Kafka
SUBSCRIBED_TOPICS_MAX = 10_000  # topics named in one Subscribe; 1 MiB holds about as many
PATTERN_LENGTH_MAX = 1_000  # of a topic expression; RE2 itself runs in linear time
CAPACITY_MAX = 1_000_000
SUBSCRIPTION_INDEX_BYTES_MAX = (
    64 * KIB
)  # of a group in its row; one with more is decoded when topics change
TOPICS_PER_RECORD_MAX = 3_000  # of one TopicMetadata record: below 1 MiB with the longest names
TOPICS_MAX = 20_000  # topics in a shard's state
TOPIC_IDS_MAX = 8  # of one topic's name: the present one, and those that it has replaced
TOPICS_LISTED_MAX = 100_000  # topics that the driver lists for the shards, which choose theirs
PARTITIONS_PER_TOPIC_MAX = 100_000
PARTITIONS_PER_ASSIGNED_GROUP_MAX = 50_000  # partitions of one target assignment
# Both together, and some reasons in words, are below RECORD_BYTES_MAX.
ASSIGNED_MEMBERS_BYTES_MAX = 3 * MIB  # members, what they want, and former owners
ASSIGNED_PARTITIONS_BYTES_MAX = 4_608 * KIB  # topics, targets, grants, demands, however divided
GRANTS_PER_MEMBER_MAX = 12  # above it the oldest two become one; commits by the older are refused
DEMANDS_PER_MEMBER_MAX = 4  # open at a time; the next one follows when a demand is met
FETCH_PART_BYTES_MAX = 512 * KIB  # one part of an OffsetFetch answer, before escaping
ANSWER_BYTES_MAX = 16 * MIB  # all parts: as much as a group's offsets may have
# Of a shard's outputs that no tick has published, before anybody has to wait (`effects.Answered`):
# a share of what all shards have, within these two.
ANSWERED_BYTES_OF_ALL = 128 * MIB
ANSWERED_BYTES_MAX = 64 * MIB
ANSWERED_BYTES_MIN = 4 * MIB

BROKERS_MAX = 1_000  # registered in one cluster, as group.max.size
CLUSTERS_PER_SHARD_MAX = 100  # a cluster has up to 4 MiB of brokers, beside its partitions
CLUSTER_PARTITIONS_MAX = 100_000  # of one cluster; 5 MB of state, rewritten with each change of it
REPLICAS_MAX = 16  # of one partition
ENDPOINTS_MAX = 16  # of one broker
HOST_LENGTH_MAX = 255  # of a DNS name
PORT_MAX = 65_535  # of TCP
ROWS_PER_REQUEST_MAX = 10_000  # partitions that one request about a cluster names, makes or moves
ROWS_PER_DEMAND_MAX = 1_000  # leaderships that one LeadershipDemanded asks for
ROWS_PER_LINE_MAX = 10_000  # partitions of one line of history
REGISTRATIONS_PER_SECOND_MAX = 5  # of one broker id; supervisors start a process once a second
REPLICAS_PER_REGISTRATION = 2_000  # of one broker: so many more count as one more registration
SUPERSEDED_MAX = 8  # registrations of one broker id that are known as superseded
METADATA_PART_BYTES_MAX = 512 * KIB  # one part of an answer, or one notice, about metadata

PENDING_PER_GROUP_MAX = 1_000  # open pending commits; a member of a group has one or two
PENDING_BYTES_PER_GROUP_MAX = 4 * MIB  # of them, and of the offsets that they may become
PENDING_BYTES_MAX = 1 * MIB  # the rows of one: as a request has
TABLE_LENGTH_MAX = 1_024  # bytes of a Delta table's path or URI, as an object store's keys
TABLE_METADATA_LENGTH_MAX = 2 * TABLE_LENGTH_MAX  # of a pending offset, as its awaiters are told it
DECISIONS_PER_RECORD_MAX = 10_000  # transactions of Kafka that one TxnDecided names: 200 KB
EPOCH_MAX = 32_766  # of a producer: int16, as Kafka's clients hold it; 32,767 is kept to fence
TXN_PARTITIONS_MAX = 10_000  # of one transaction
TXN_GROUPS_MAX = 100  # whose offsets one transaction commits
TXN_SHARDS_MAX = 256  # of a prefix whose coordinator decides: each pair of shards has a channel
TXN_IDS_PER_SHARD_MAX = 10_000  # transactional ids; an idle one has some 700 bytes of state
TXN_OFFSETS_BYTES_MAX = 1 * MIB - 8 * KIB  # of one commit, which FromShard wraps
TXN_TIMEOUT_MIN_MS = 6_000  # the clock's CAP is a fifth of it (time-and-fencing.md, rule 1)
TXN_TIMEOUT_MAX_MS = 900_000  # transaction.max.timeout.ms
UNHEARD_MAX = 10_000  # messages of a channel that are not known to be judged

GROUP_SIZE_MAX = 1_000  # members; a leader's answer has the metadata of all
GROUPS_PER_SHARD_MAX = 20_000  # 90 MB with 10 members each, above SHARD_BYTES_MAX
NEW_GROUPS_PER_SECOND_MAX = 100  # of a shard; 0.12 ms of processor and six outputs each
SHARD_RESERVE_SHARE = 4  # of SHARD_BYTES_MAX a quarter more, for members that are in it
SHARD_BYTES_MAX = 64 * MIB  # all of it is written when its pages are cut anew: about three seconds

REFUSALS_WINDOW_MS = 10_000  # of the shard's clock, in which a group's refusals are counted
REFUSALS_REPORTED_MAX = 100  # refusals with a line of history each: ten a second
# After these only every 1,000th refusal is recorded; that line gives the number skipped.
REFUSALS_REPORTED_EVERY = 1_000

SESSION_TIMEOUT_MIN_MS = 6_000  # group.min.session.timeout.ms
SESSION_TIMEOUT_MAX_MS = 1_800_000  # group.max.session.timeout.ms
REBALANCE_TIMEOUT_MIN_MS = 6_000  # the clock's CAP is a fifth of it (time-and-fencing.md, rule 1)
RELEASE_TIMEOUT_MIN_MS = 6_000  # of a broker; as REBALANCE_TIMEOUT_MIN_MS
RELEASE_TIMEOUT_MAX_MS = 24 * 3_600_000  # as REBALANCE_TIMEOUT_MAX_MS
REBALANCE_TIMEOUT_MAX_MS = 24 * 3_600_000  # beyond a day a dead member would hold a group for ever
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000  # KAFKA-7610: a parked newcomer without an answer is dropped
CLOCK_CAP_IDLE_MS = 600_000  # rule 1: CAP of a shard that waits for no member

# Of claims; they are part of the protocol, so no setting changes them (core/claims).
CLAIM_BYTES_MAX = 2 * KIB  # a message: four names of 249 bytes and five numbers
SLOTS_MAX = 50_000  # of a coordination partition; Marshal's own ceiling is 24,990 claims
PAUSES_MAX = 10_000  # paused groups of a coordination partition
PAUSE_MAX_MS = 7 * 24 * 3_600_000  # longer pauses end then: a mistyped year stops no group
POSITION_KEPT_MS = 7 * 24 * 3_600_000  # offsets.retention.minutes of Kafka: after the last sign
SNAPSHOT_PAGE_BYTES_MAX = 1 * MIB  # of one record of the snapshots
CLOCKS_REPORTED_MAX = 10_000  # clients whose clocks history has warned of within an hour

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DURATION_MAX_MS = INT32_MAX * 60_000  # of any setting: offsets.retention.minutes is an int32
