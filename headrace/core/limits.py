"""The bounds that several modules share, by name. A bound that one module alone uses stands in that module.

Units stand last in the names.
"""

# Records and batches
BATCH_HEADER_BYTES = 64
BATCH_BYTES_MAX = 1 << 30
"""The largest length in a batch header; a topic's `maxMessageBytes` is the bound that users set."""
BATCH_RECORDS_MAX = 1 << 24
BATCH_DECOMPRESSED_BYTES_MAX = 256 << 20
"""The largest memory that a compressed batch may claim: a consumer allocates it before it can know better."""
RECORD_HEADERS_MAX = 1024

# Topics
TOPIC_PARTITIONS_MAX = 1024

# The log
INDEX_INTERVAL_BYTES = 4096
"""The least distance between two entries of a segment's sparse indexes."""
WRITEV_BUFFERS_MAX = 1024
"""The number of buffers given to one `writev` (IOV_MAX on Linux)."""
SEGMENT_BYTES_MAX = (1 << 32) - 1
"""The largest segment: positions in an index have 32 bits; a larger `segment.bytes` rolls here."""
SEGMENT_OFFSETS_MAX = (1 << 32) - 1
UNSYNCED_SEGMENTS_MAX = 8
"""The number of closed segments that wait for their sync; where syncs do not keep up, the active segment grows
instead."""
READ_INLINE_BYTES_MAX = 1 << 20
"""The longest read on the event loop; a longer one leaves it even where the page cache has it: to copy it takes a
quarter of a millisecond. What producers make, and what sessions and streams read at a time, is no longer: it is named
after this below."""
COMPACTION_KEYS_MAX = 1 << 20
"""The number of keys that one pass of compaction holds; a log in which more have changed is compacted in several."""
COMPACTION_CHUNK_BYTES = 4 << 20
PRODUCER_BATCHES_REMEMBERED = 5
"""The number of batches of one producer by which a repeated one is known: an idempotent producer has no more on their
way."""

# HTTP
REQUEST_BODY_BYTES_MAX = 64 << 20
"""The largest produce request; the batches in it are bounded by their topics."""
JSON_LINE_BYTES_MAX = 8 << 20
FETCH_BYTES_DEFAULT = 8 << 20
FETCH_BYTES_MAX = 64 << 20
FETCH_RECORDS_MAX = 1 << 24
WATCH_DRAIN_MS = 2_000
"""The time that a client that does not read gets to take its stream's end when the broker stops."""
PRODUCE_TIMEOUT_MS_DEFAULT = 30_000
PRODUCE_TIMEOUT_MS_MAX = 300_000
DELETE_TIMEOUT_MS = 30_000
"""The time that a broker that passes a deletion of records on to the leader waits for its answer."""
REQUEST_BYTES_IN_FLIGHT_MAX = 512 << 20
"""The bytes of requests' bodies, as far as they have arrived, that a broker holds at one time; above it clients get 429
and wait."""
PROCESS_BYTES = 128 << 20
"""The part of a broker's memory for the process itself, with what it loads for JSON."""
BUDGET_BYTES_MIN = 16 << 20
"""The least size of each budget, however little memory there is: less would refuse a batch of the usual largest
size."""
JSON_MEMORY_FACTOR = 8
"""The factor of memory that records take while they are turned into JSON or back."""

# Sessions
SESSION_JSON_BYTES_MAX = 64 << 10
SESSION_GROUP_FRAMES_MAX = 64
SESSION_GROUP_BYTES = 1 << 20
"""The bytes of produces that are appended in one go; of frames that are handled, or sent, before the event loop has its
turn."""

# Partitions
HOLDING_RETRY_MS = 2_000
"""The shortest time after a failed action on a partition's data until it is tried again for that reason."""

# The disk
DISK_BALLAST_BYTES = 1 << 20
"""The size of a file that is given up when others have filled the volume: a start writes a few blocks before all
else."""

# HTTP/2
H2_STREAM_WINDOW_BYTES = 8 << 20
H2_REQUEST_WINDOW_BYTES = 64 << 10
"""The window of a request, until its handler counts on more: no room was made for these bytes."""
H2_CONNECTION_WINDOW_BYTES = 64 << 20
H2_MAX_FRAME_BYTES = READ_INLINE_BYTES_MAX + (64 << 10)
"""The largest frame: a batch as producers make them by default, or what is read at once, with its headers."""
H2_MAX_CONCURRENT_STREAMS = 1000
H2_HEADER_LIST_BYTES_MAX = 64 << 10
H2_SEND_BUFFER_BYTES = 4 << 20
"""The bytes that one connection may have waiting for its socket before senders wait."""
H2_WRITE_BYTES = H2_MAX_FRAME_BYTES
"""The body bytes that are framed at a time, before the socket is asked to take them."""
H2_WRITES_PER_TURN = H2_SEND_BUFFER_BYTES // H2_WRITE_BYTES
"""The number of writes of one connection before others get the loop, or the lock."""
H2_READ_BYTES = H2_MAX_FRAME_BYTES
"""The size of the buffer that all connections of a server are read into, one after the other; a client's has its
own."""
H2_HEADER_BLOCK_BYTES_MAX = H2_HEADER_LIST_BYTES_MAX
"""The size of a compressed head, over all its frames."""
H2_HEADER_TABLE_BYTES = 4096
"""The size of HPACK's dynamic table, in each direction; RFC 9113 has this as the default."""
RETRY_AFTER_S = 1
"""The seconds in Retry-After: elections and throttling pass about that fast."""
HTTP_LINGER_MS = 1_000
"""The time that a client gets to stop its upload after its answer is complete; until then the bytes are discarded."""

# TLS
TLS_FILE_BYTES_MAX = 1 << 20
"""The size of a certificate, key or CA bundle; a Secret cannot hold more either."""
TLS_FILES_INTERVAL_MS = 1_000
"""The interval at which a broker reads its certificate files again; a change is taken when two readings agree."""

# Coordination
LEASE_DURATION_MS = 10_000
LEASE_RENEW_INTERVAL_MS = 3_000
ISR_TICK_MS = 500
"""The interval at which a broker checks whether a partition that it leads wants another ISR, while a replica of it is
missing."""
SET_CALLS_MAX = 8
"""The number of writes and reads of PartitionSets that one broker has on their way at once, each of another set."""
RECONCILE_RESYNC_MS = 15_000
RECONCILE_BACKOFF_MAX_MS = 2_000
"""The longest pause between passes of the operator that failed: a partition without a leader waits for the next one."""
RECONCILE_INTERVAL_MS_MIN = 100
"""The least pause between two passes of the operator, however much is going on."""
HELD_TOPICS_MAX = 20
"""The number of topics in one question to a broker about what it holds of them."""
PROMISES_ASKED_MAX = 10_000
"""The number of partitions in one request for promises."""
OPERATOR_LEASE_DURATION_MS = 6_000
"""The age without renewal at which an operator's Lease ends: it acts no more, and another takes over."""
OPERATOR_LEASE_RENEW_MS = 2_000
FINALIZER_WAIT_MS = 30_000
"""The time that a deleted Topic waits at most for its brokers to delete the data."""
API_REQUEST_TIMEOUT_MS = 5_000
"""The time after which a request to the API server is given up; whether it landed is then unknown."""
API_CONNECT_TIMEOUT_MS = 3_000
API_BACKOFF_MIN_MS = 100
WATCH_SILENCE_MS_MAX = 60_000
"""The time after which a watch that has not ended or sent anything is started again."""
DRAIN_TIMEOUT_MS = 20_000
HANDOVER_TIMEOUT_MS = 15_000
"""The time that a broker that is asked to stop waits at most for others to take over what it leads ..."""
DECOMMISSION_TIMEOUT_MS = 600_000
"""... and the time, where its ordinal is above the StatefulSet's replicas, for others to hold all that it holds."""
CATCH_UP_TIMEOUT_MS = 600_000
"""The time after the request to stop for which it stays in sync, at most, for replicas that catch up. A Pod's grace is
more than that."""
STEP_DOWN_TIMEOUT_MS = 2_000
"""The time that a broker that stops gets to leave the ISRs that can do without it."""

# Replication streams
REPLICATION_READ_BYTES = READ_INLINE_BYTES_MAX
"""The bytes of batches in one frame, one at least: a follower appends so much before its loop turns."""
REPLICATION_TICK_MS = 500
"""The interval at which each side of a stream checks the time."""

# Clients
PRODUCER_BATCH_BYTES_DEFAULT = READ_INLINE_BYTES_MAX
"""The size at which a producer closes a batch, or the topic's `maxMessageBytes` where that is smaller."""
PRODUCER_BUFFER_BYTES_DEFAULT = 64 << 20
"""The bytes of records that wait to be acknowledged, per producer; `send` waits above it."""
PRODUCER_REQUESTS_MAX = 64
"""The number of batches that one producer has on their way at once, over all partitions."""
CONSUMER_REQUESTS_MAX = 64
"""The number of fetches that one consumer has on their way at once."""
OFFSET_REQUESTS_MAX = 16
"""The number of partitions whose offsets one client looks up at once."""
FETCH_BYTES_MIN = 64 << 10
"""The least size for which a consumer of very many partitions asks each."""
DELIVERY_TIMEOUT_MS_DEFAULT = 120_000
"""The time for which clients retry, and a batch may wait, before the error reaches the user (Kafka's
delivery.timeout.ms)."""
CLIENT_BACKOFF_MIN_MS = 50
CLIENT_STALL_SLACK_MS = 30_000
"""The time beyond all time limits (connecting, metadata, the request) after which a client in which nothing moves is
broken."""
CLIENT_STALL_CHECK_MS = 1_000
"""The interval at which waiting callers check whether anything still moves."""
LEADER_SEARCH_MS = 250
"""The shortest interval at which a client asks for the leader instead of a silent leader."""
FETCH_LONG_POLL_MS = 2_000
"""The time that a fetch of a consumer waits for new records, and a paused or moved partition at most."""

# headrace dev
DEV_BROKERS_MAX = 16
"""The number of broker processes on one machine: `kubectl scale` with a mistyped number must not fork a hundred."""

# The embedded Kubernetes API of `headrace dev`
DEV_REQUEST_BODY_BYTES_MAX = 3 << 20
"""The largest request body, as in a kube-apiserver."""

# Consumer groups
GROUPS_PER_COORDINATOR_MAX = 10_000
"""The number of groups on one partition of the offsets topic, which their coordinator keeps in memory."""
OFFSETS_PARTITIONS = 16
"""The number of partitions of the offsets topic, for ever: a group's coordinator depends on it."""
COORDINATOR_RELOAD_MS = 1_000
"""The time after which a coordinator that could not write or read its log begins again."""
JSON_INLINE_BYTES_MAX = 64 << 10
"""The size from which a body leaves the event loop to be parsed: a kilobyte takes ten microseconds."""
LOOK_ITEMS_MAX = 1_000
"""The number of groups that are checked before others have the event loop."""
MEMBER_ID_LENGTH_MAX = 64
INSTANCE_ID_LENGTH_MAX = 253
"""The length of an instance id, as of the name of a Pod."""
GROUP_HEARTBEAT_MS_MAX = 3_000
"""The longest pause between heartbeats: a member sends three in a session, and at least one in this time."""
GROUP_HEARTBEAT_MS_RECONCILING = 250
"""The pause while partitions change hands, unless the member waits at the coordinator for news."""
MEMBER_REQUESTS_MAX = 8
"""The number of requests of one member on their way: answers to older ones carry no news."""
REBALANCE_TIMEOUT_MS_DEFAULT = 60_000
REBALANCE_TIMEOUT_MS_MIN = 1_000
REBALANCE_TIMEOUT_MS_MAX = 3_600_000
"""The time that a member may take to give partitions up before it is removed."""
OFFSET_METADATA_BYTES_MAX = 4096
OFFSETS_PER_COMMIT_MAX = 4096
"""The number of offsets that `spec.resetOffsets` may name; more are committed in several requests."""
AUTO_COMMIT_INTERVAL_MS_DEFAULT = 5_000
MAX_POLL_INTERVAL_MS_DEFAULT = 300_000
"""The time for which a consumer's user may keep its records before the consumer leaves the group."""
GROUP_REQUEST_TIMEOUT_MS = 5_000
"""The time limit of one try of a client's request about its group; there are many tries in a session."""
GROUP_LOOK_MS_MAX = 500
"""The longest interval at which a client checks its place in its group: whether its user stalls, what is to be
committed."""
CONSUMER_CLOSE_MS_DEFAULT = 10_000
"""The time that closing a consumer takes at most, whichever server is silent: well below the 30 s that Pods get. A
fourth of it is kept for the request to leave, the rest for its last commit."""
CONSUMER_LEAVE_MS_MIN = 1_000
"""The least time for the request to leave, even where callbacks took all the time there was."""
INTERNAL_REPLICAS_MAX = 3
"""The number of replicas of an internal topic, in a cluster that has as many brokers."""
OFFSETS_SEGMENT_BYTES = 16 << 20
"""The segment size of the internal topic: the active segment is not compacted, and a new coordinator reads each of its
commits."""
OFFSETS_MESSAGE_BYTES = 8 << 20
"""The least message size of the internal topic: a group's whole assignment is one batch."""
GROUP_CALLS_MAX = 8
"""The number of writes of ConsumerGroups that the operator has on their way at once."""
WATERMARKS_ASKED_MAX = 4096
"""The number of partitions in one request for watermarks."""
WATERMARKS_TIMEOUT_MS = 2_000
"""The time within which a leader must answer with its watermarks; else the lag of its partitions is not known."""

# Staged commits
COMMITS_PARTITIONS = 8
"""The number of partitions of the commits topic, for ever: a writer's coordinator depends on it."""
STAGING_PARTITIONS_EACH = 4
"""The number of partitions of the staging topic that belong to each of them: one writer's stages are spread over so
many."""
STAGING_MESSAGE_BYTES = 64 << 20
"""The message size of the staging topic: all that a topic takes can be staged."""
COMMIT_WAIT_MS_MAX = 60_000
"""The time that its answer waits at most until everything is in its partition."""
WRITER_REQUESTS_MAX = 1_000
"""The number of requests that one coordinator has yet to answer."""
STAGING_LOOK_INTERVAL_MS = 10_000
"""The interval at which a coordinator checks which of its stages can be deleted."""

# Spark
