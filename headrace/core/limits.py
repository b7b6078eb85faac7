"""The bounds that several modules share, by name. A bound that one module alone uses stands in that module.

Units stand last in the names.
"""

# Records and batches
BATCH_HEADER_BYTES = 64
BATCH_BYTES_MAX = 1 << 30
"""What a batch header may claim at most; a topic's `maxMessageBytes` is the bound that users set."""
BATCH_RECORDS_MAX = 1 << 24
BATCH_DECOMPRESSED_BYTES_MAX = 256 << 20
"""What a compressed batch may claim to be in memory: a consumer allocates it before it can know better."""
RECORD_HEADERS_MAX = 1024

# Topics
TOPIC_PARTITIONS_MAX = 1024

# The log
INDEX_INTERVAL_BYTES = 4096
"""At least this much log lies between two entries of a segment's sparse indexes."""
WRITEV_BUFFERS_MAX = 1024
"""Buffers given to one `writev` (IOV_MAX on Linux)."""
SEGMENT_BYTES_MAX = (1 << 32) - 1
"""Positions in an index have 32 bits; a larger `segment.bytes` rolls here."""
SEGMENT_OFFSETS_MAX = (1 << 32) - 1
UNSYNCED_SEGMENTS_MAX = 8
"""Closed segments that wait for their sync; where syncs do not keep up, the active segment grows instead."""
READ_INLINE_BYTES_MAX = 1 << 20
"""A longer read leaves the event loop even where the page cache has it: to copy it takes a quarter of a millisecond.
What producers make, and what sessions and streams read at a time, is no longer: it is named after this below."""
COMPACTION_KEYS_MAX = 1 << 20
"""Keys that one pass of compaction holds; a log in which more have changed is compacted in several."""
COMPACTION_CHUNK_BYTES = 4 << 20
PRODUCER_BATCHES_REMEMBERED = 5
"""Batches of one producer by which a repeated one is known: an idempotent producer has no more on their way."""

# HTTP
REQUEST_BODY_BYTES_MAX = 64 << 20
"""The largest produce request; the batches in it are bounded by their topics."""
JSON_LINE_BYTES_MAX = 8 << 20
FETCH_BYTES_DEFAULT = 8 << 20
FETCH_BYTES_MAX = 64 << 20
FETCH_RECORDS_MAX = 1 << 24
WATCH_DRAIN_MS = 2_000
"""What a client that does not read gets to take its stream's end when the broker stops."""
PRODUCE_TIMEOUT_MS_DEFAULT = 30_000
PRODUCE_TIMEOUT_MS_MAX = 300_000
DELETE_TIMEOUT_MS = 30_000
"""... and for that to a deletion of records."""
REQUEST_BYTES_IN_FLIGHT_MAX = 512 << 20
"""Bodies of requests, as far as they have arrived, that a broker holds at one time; above it clients are told to wait
(429)."""
PROCESS_BYTES = 128 << 20
"""Of the memory that a broker may use, for the process itself, with what it loads for JSON."""
BUDGET_BYTES_MIN = 16 << 20
"""Of each, however little memory there is: less would refuse a batch of the usual largest size."""
JSON_MEMORY_FACTOR = 8
"""So many times its size records take while they are turned into JSON or back."""

# Sessions
SESSION_JSON_BYTES_MAX = 64 << 10
SESSION_GROUP_FRAMES_MAX = 64
SESSION_GROUP_BYTES = 1 << 20
"""Produces that are appended in one go; frames that are handled, or sent, before the event loop has its turn."""

# Partitions
HOLDING_RETRY_MS = 2_000
"""After an action on a partition's data has failed, it is looked at again no sooner than this for that reason."""

# The disk
DISK_BALLAST_BYTES = 1 << 20
"""A file of this size is given up when others have filled the volume: a start writes a few blocks before all else."""

# HTTP/2
H2_STREAM_WINDOW_BYTES = 8 << 20
H2_REQUEST_WINDOW_BYTES = 64 << 10
"""A request's own, until its handler counts on more: nobody has made room for these bytes."""
H2_CONNECTION_WINDOW_BYTES = 64 << 20
H2_MAX_FRAME_BYTES = READ_INLINE_BYTES_MAX + (64 << 10)
"""A batch as producers make them by default, or what is read at once, and what is said around it: one frame."""
H2_MAX_CONCURRENT_STREAMS = 1000
H2_HEADER_LIST_BYTES_MAX = 64 << 10
H2_SEND_BUFFER_BYTES = 4 << 20
"""What one connection may have waiting for its socket before senders wait."""
H2_WRITE_BYTES = H2_MAX_FRAME_BYTES
"""Body bytes framed at a time, before the socket is asked to take them."""
H2_WRITES_PER_TURN = H2_SEND_BUFFER_BYTES // H2_WRITE_BYTES
"""Writes of one connection before others get the loop, or the lock."""
H2_READ_BYTES = H2_MAX_FRAME_BYTES
"""The buffer that all connections of a server are read into, one after the other; a client's has its own."""
H2_HEADER_BLOCK_BYTES_MAX = H2_HEADER_LIST_BYTES_MAX
"""A compressed head, over all its frames."""
H2_HEADER_TABLE_BYTES = 4096
"""HPACK's dynamic table, in each direction; RFC 9113 has this as the default."""
RETRY_AFTER_S = 1
"""What clients are told to wait: elections and throttling pass about that fast."""
HTTP_LINGER_MS = 1_000
"""What a client gets to stop its upload after its answer is complete; until then the bytes are discarded."""

# TLS
TLS_FILE_BYTES_MAX = 1 << 20
"""Of a certificate, key or CA bundle; a Secret cannot hold more either."""
TLS_FILES_INTERVAL_MS = 1_000
"""How often a broker reads its certificate files again; what differs is taken when two readings agree."""

# Coordination
LEASE_DURATION_MS = 10_000
LEASE_RENEW_INTERVAL_MS = 3_000
ISR_TICK_MS = 500
"""How often a broker looks whether a partition that it leads wants another ISR, while a replica of it is missing ..."""
SET_CALLS_MAX = 8
"""Writes and reads of PartitionSets that one broker has on their way at once, each of another set."""
RECONCILE_RESYNC_MS = 15_000
RECONCILE_BACKOFF_MAX_MS = 2_000
"""Between passes of the operator that failed: a partition without a leader waits for the next one."""
RECONCILE_INTERVAL_MS_MIN = 100
"""Between two passes of the operator at least, however much is going on."""
HELD_TOPICS_MAX = 20
"""Topics in one question to a broker about what it holds of them."""
PROMISES_ASKED_MAX = 10_000
"""Partitions in one request for promises."""
OPERATOR_LEASE_DURATION_MS = 6_000
"""An operator that has not renewed its Lease for so long acts no more, and another takes over."""
OPERATOR_LEASE_RENEW_MS = 2_000
FINALIZER_WAIT_MS = 30_000
"""A deleted Topic waits this long at most for its brokers to delete the data."""
API_REQUEST_TIMEOUT_MS = 5_000
"""A request to the API server that takes longer is given up; whether it landed is then unknown."""
API_CONNECT_TIMEOUT_MS = 3_000
API_BACKOFF_MIN_MS = 100
WATCH_SILENCE_MS_MAX = 60_000
"""A watch that has not ended or said anything for this long is started again."""
DRAIN_TIMEOUT_MS = 20_000
HANDOVER_TIMEOUT_MS = 15_000
"""A broker that is asked to stop waits so long at most for others to take over what it leads ..."""
DECOMMISSION_TIMEOUT_MS = 600_000
"""... and so long, where its ordinal is above the StatefulSet's replicas, for others to hold all that it holds."""
CATCH_UP_TIMEOUT_MS = 600_000
"""So long after it was asked, at most, it stays in sync for replicas that catch up. A Pod's grace is more than that."""
STEP_DOWN_TIMEOUT_MS = 2_000
"""What a broker that stops gets to leave the ISRs that can do without it."""

# Replication streams
REPLICATION_READ_BYTES = READ_INLINE_BYTES_MAX
"""Batches in one frame, one at least: a follower appends so much before its loop turns."""
REPLICATION_TICK_MS = 500
"""How often each side of a stream looks at the time."""

# Clients
PRODUCER_BATCH_BYTES_DEFAULT = READ_INLINE_BYTES_MAX
"""A producer closes a batch at this size, or at the topic's `maxMessageBytes` where that is smaller."""
PRODUCER_BUFFER_BYTES_DEFAULT = 64 << 20
"""Records that wait to be acknowledged, per producer; `send` waits above it."""
PRODUCER_REQUESTS_MAX = 64
"""Batches that one producer has on their way at once, over all partitions."""
CONSUMER_REQUESTS_MAX = 64
"""Fetches that one consumer has on their way at once."""
OFFSET_REQUESTS_MAX = 16
"""Partitions whose offsets one client looks up at once."""
FETCH_BYTES_MIN = 64 << 10
"""A consumer of very many partitions asks each for at least this much."""
DELIVERY_TIMEOUT_MS_DEFAULT = 120_000
"""How long clients retry, and a batch may wait, before the error reaches the user (Kafka's delivery.timeout.ms)."""
CLIENT_BACKOFF_MIN_MS = 50
CLIENT_STALL_SLACK_MS = 30_000
"""Beyond all time limits (connecting, metadata, the request): a client in which nothing moves for longer is broken."""
CLIENT_STALL_CHECK_MS = 1_000
"""How often those who wait look whether anything still moves."""
LEADER_SEARCH_MS = 250
"""So often, at most, a client asks who leads instead of a silent leader."""
FETCH_LONG_POLL_MS = 2_000
"""A consumer's fetch waits this long at the broker for new records, and a paused or moved partition at most so long."""

# headrace dev
DEV_BROKERS_MAX = 16
"""Broker processes on one machine: `kubectl scale` of a typing error must not fork a hundred."""

# The embedded Kubernetes API of `headrace dev`
DEV_REQUEST_BODY_BYTES_MAX = 3 << 20
"""As a kube-apiserver's own limit."""

# Consumer groups
GROUPS_PER_COORDINATOR_MAX = 10_000
"""Groups on one partition of the offsets topic: what their coordinator keeps in memory."""
OFFSETS_PARTITIONS = 16
"""Of the offsets topic, for ever: a group's coordinator depends on their number."""
COORDINATOR_RELOAD_MS = 1_000
"""A coordinator that could not write or read its log begins again after this."""
JSON_INLINE_BYTES_MAX = 64 << 10
"""A longer body leaves the event loop to be parsed: a kilobyte takes ten microseconds."""
LOOK_ITEMS_MAX = 1_000
"""Groups that are looked at before others have the event loop."""
MEMBER_ID_LENGTH_MAX = 64
INSTANCE_ID_LENGTH_MAX = 253
"""As the name of a Pod."""
GROUP_HEARTBEAT_MS_MAX = 3_000
"""A member heartbeats three times in a session, and this often at least."""
GROUP_HEARTBEAT_MS_RECONCILING = 250
"""So often while partitions change hands, unless the member waits at the coordinator for news."""
MEMBER_REQUESTS_MAX = 8
"""Of one member, on their way: answers to older ones say nothing new."""
REBALANCE_TIMEOUT_MS_DEFAULT = 60_000
REBALANCE_TIMEOUT_MS_MIN = 1_000
REBALANCE_TIMEOUT_MS_MAX = 3_600_000
"""How long a member may take to give partitions up before it is removed."""
OFFSET_METADATA_BYTES_MAX = 4096
OFFSETS_PER_COMMIT_MAX = 4096
"""As many as `spec.resetOffsets` may name; more are committed in several requests."""
AUTO_COMMIT_INTERVAL_MS_DEFAULT = 5_000
MAX_POLL_INTERVAL_MS_DEFAULT = 300_000
"""How long a consumer's user may keep what he was handed before his consumer leaves the group for him."""
GROUP_REQUEST_TIMEOUT_MS = 5_000
"""What a client gives one try of a request about its group; there are many tries in a session."""
GROUP_LOOK_MS_MAX = 500
"""So often at least a client looks after its place in its group: whether its user stalls, what is to be committed."""
CONSUMER_CLOSE_MS_DEFAULT = 10_000
"""Closing a consumer takes no longer, whoever is silent: well below the 30 s that Pods get. A fourth of it is kept for
saying that it leaves, the rest for its last commit."""
CONSUMER_LEAVE_MS_MIN = 1_000
"""So long it tries to say so, even where callbacks took all the time there was."""
INTERNAL_REPLICAS_MAX = 3
"""Of an internal topic, in a cluster that has as many brokers."""
OFFSETS_SEGMENT_BYTES = 16 << 20
"""Of the internal topic: what is written to is not compacted, and a new coordinator reads each of its commits."""
OFFSETS_MESSAGE_BYTES = 8 << 20
"""Of the internal topic, at least: a group's whole assignment is one batch."""
GROUP_CALLS_MAX = 8
"""Writes of ConsumerGroups that the operator has on their way at once."""
WATERMARKS_ASKED_MAX = 4096
"""Partitions in one request for watermarks."""
WATERMARKS_TIMEOUT_MS = 2_000
"""A leader that does not tell its watermarks within this: the lag of its partitions is not known."""

# Staged commits
COMMITS_PARTITIONS = 8
"""Of the commits topic, for ever: a writer's coordinator depends on their number."""
STAGING_PARTITIONS_EACH = 4
"""Partitions of the staging topic that belong to each of them: one writer's stages are spread over so many."""
STAGING_MESSAGE_BYTES = 64 << 20
"""Of the staging topic: whatever a topic takes can be staged."""
COMMIT_WAIT_MS_MAX = 60_000
"""So long its answer waits at most until everything is in its partition."""
WRITER_REQUESTS_MAX = 1_000
"""That one coordinator has yet to answer."""
STAGING_LOOK_INTERVAL_MS = 10_000
"""So often a coordinator looks what of its stages can be deleted."""

# Spark
