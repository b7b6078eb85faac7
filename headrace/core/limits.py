"""Every bound of Headrace, by name (house rule 5). Units stand last in the names."""

# Records and batches
BATCH_HEADER_BYTES = 64
BATCH_BYTES_MAX = 1 << 30
"""What a batch header may claim at most; a topic's `maxMessageBytes` is the bound that users set."""
BATCH_RECORDS_MAX = 1 << 24
TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The greatest time of a record that is taken: the end of the year 9999. Micro- and nanoseconds of today are above."""
TIMESTAMP_AHEAD_MS = 3_600_000
"""Whoever writes a record whose time is further ahead than this is warned: no clock is that wrong."""
STRANGE_TIMES_TOLD_MS = 3_600_000
"""A Topic is told of records with strange times once in so long, by each partition."""
TIMES_COUNTED_PLAINLY_MAX = 64
"""Times of so many records are compared without numpy: a broker of small batches does not load it."""
FEW_ROWS_MAX = 64
FEW_ROWS_BYTES_MAX = 64 << 10
"""Batches up to this are encoded without Arrow: above, its columns are faster."""
BATCH_METADATA_BYTES_MAX = 4096
"""Arrow's metadata at the start of a body; the schema of records needs about 500 bytes."""
BATCH_DECOMPRESSED_BYTES_MAX = 256 << 20
"""What a compressed batch may claim to be in memory: a consumer allocates it before it can know better."""
DEFAULT_MAX_MESSAGE_BYTES = 8 << 20
RECORD_HEADERS_MAX = 1024
JSON_DEPTH_MAX = 128
"""A value that is nested deeper comes out as a string where JSON values were asked for."""

# Topics
TOPIC_PARTITIONS_MAX = 1024
TOPIC_REPLICAS_MAX = 7
PARTITIONS_PER_SET_MAX = 100
"""Partitions in one PartitionSet: keeps the object far below the API server's 1.5 MiB."""
NAME_LENGTH_MAX = 63

# The log
INDEX_INTERVAL_BYTES = 4096
"""At least this much log lies between two entries of a segment's sparse indexes."""
WRITEV_BUFFERS_MAX = 1024
"""Buffers given to one `writev` (IOV_MAX on Linux)."""
SEGMENT_BYTES_MIN = 16 << 10
"""For a smaller `segment.bytes` too: a segment is three files, and not every small request is worth that much."""
SEGMENT_BYTES_MAX = (1 << 32) - 1
"""Positions in an index have 32 bits; a larger `segment.bytes` rolls here."""
SEGMENT_OFFSETS_MAX = (1 << 32) - 1
RECOVERY_SCAN_BYTES = 64 << 20
"""The recovery point follows the durable end this closely: a start after a crash scans no more per partition."""
REPLICATED_SYNC_BYTES = 64 << 20
"""Durability Replicated: synced in the background each time this much was appended."""
RECOVERY_CHUNK_BYTES = 4 << 20
VERIFY_CHUNK_BYTES = 1 << 20
"""A closed segment is read through in pieces of this size, or of one batch that is larger."""
VERIFY_BYTES_PER_S = 16 << 20
VERIFY_DOUBTS_BYTES_PER_S = 256 << 20
"""Of a log in which somebody has come upon damage."""
VERIFY_INTERVAL_MS = 7 * 24 * 3_600_000
"""Each partition's closed segments are read through after each start, this often, and when somebody found damage."""
VERIFY_TICK_MS = 2_000
MENDING_INTERVAL_MS = 60_000
"""Of the lives that one process ends because a log is damaged, each but the first lasts this long at least."""
UNSYNCED_SEGMENTS_MAX = 8
"""Closed segments that wait for their sync; where syncs do not keep up, the active segment grows instead."""
CLOSED_SEGMENTS_OPEN_MAX = 1024
"""Closed segments that a broker keeps open for its readers, or fewer where it may not open many files."""
READ_INLINE_BYTES_MAX = 1 << 20
"""A longer read leaves the event loop even where the page cache has it: to copy it takes a quarter of a millisecond.
What producers make, and what sessions and streams read at a time, is no longer: it is named after this below."""
READ_ONCE_BYTES_MIN = 64 << 10
"""A fetch that reads less from the disk leaves it in the page cache: an index, or records that somebody looks at."""
THREAD_SWITCH_US = 500
"""How long a thread of a broker may compute while its event loop waits for its turn, instead of Python's own 5 ms."""
READ_POSITIONS_MAX = 64
"""Ends of recent reads that one partition remembers: the next fetch of a consumer starts there."""
SYNC_THREADS_MAX = 16
READ_THREADS_MAX = 8
"""Threads of their own: readers of cold data never stand before an `fdatasync`."""
COMPACTION_KEYS_MAX = 1 << 20
"""Keys that one pass of compaction holds; a log in which more have changed is compacted in several."""
COMPACTION_KEYS_MIN = 1 << 14
COMPACTION_KEY_BYTES = 256
"""Memory that a key takes at most."""
COMPACTION_MEMORY_PART = 16
"""One of so many parts of a broker's memory is for the keys of a pass."""
COMPACTOR_BYTES = 96 << 20
"""Of the memory that a broker may use, for the process that compacts, without the keys: itself, and a few batches."""
COMPACTED_BATCH_BYTES = 1 << 20
"""Batches that compaction has made small are joined up to this size."""
COMPACTION_DIRTY_PERCENT_MIN = 50
"""A log is compacted when so much of its closed segments has come since the last time (Kafka's dirty ratio)."""
COMPACTION_LAG_MS_MAX = 86_400_000
"""Or when a segment that has come since was closed so long ago."""
COMPACTION_BYTES_PER_SECOND = 128 << 20
"""What compaction reads in a second at most, all partitions of a broker together."""
COMPACTION_INTERVAL_MS = 2_000
"""How often a broker looks whether a log is to be compacted."""
COMPACTION_RETRY_MS = 60_000
"""A log whose compaction has failed is left alone for so long, and twice as long after each failure that follows ..."""
COMPACTION_RETRY_MS_MAX = 3_600_000
"""... up to this."""
COMPACTION_FAILURES_MAX = 3
"""After so many failures in a row it is an error and no warning."""
COMPACTION_CHUNK_BYTES = 4 << 20
COMPACTOR_IDLE_MS = 30_000
"""The process that compacts ends after so long without work."""
CLEAN_POINTS_MAX = 64
"""Times that one log remembers at which a part of it was compacted: tombstones are kept for a while from then."""
PRODUCER_BATCHES_REMEMBERED = 5
"""Batches of one producer by which a repeated one is known: an idempotent producer has no more on their way."""
PRODUCERS_REMEMBERED_MAX = 2_000
"""Idempotent producers that one partition remembers; above it the one that wrote nothing for longest is forgotten."""
PRODUCER_EXPIRY_MS = 86_400_000
"""A producer that wrote nothing for so long may be forgotten (Kafka's producer.id.expiration.ms)."""
PRODUCERS_REBUILD_BYTES = 64 << 20
"""Where the snapshot of a log's producers is lost, so much of the newest log below the recovery point is looked at."""
ORPHAN_RETENTION_MS = 7 * 86_400_000

# HTTP
REQUEST_BODY_BYTES_MAX = 64 << 20
"""The largest produce request; the batches in it are bounded by their topics."""
GZIP_MEMBERS_MAX = 1000
"""gzip files joined into one request body: empty ones would cost time without ever reaching the limit of bytes."""
JSON_LINE_BYTES_MAX = 8 << 20
FETCH_BYTES_DEFAULT = 8 << 20
FETCH_BYTES_MAX = 64 << 20
JSON_FETCH_BYTES_MAX = 64 << 20
"""Records of one JSON or NDJSON answer: compressed batches may be many times as large as the bytes that were read."""
FETCH_RECORDS_MAX = 1 << 24
FETCH_WAIT_MS_MAX = 60_000
WATCHES_MAX = 1024
"""Endless streams of records that one broker serves or passes on; above it clients are told to wait (429)."""
WATCH_PIECES_BURST = 64
"""Pieces of records that one client's streams are given in a row. Records that wait come in one larger piece."""
WATCH_PIECE_INTERVAL_MS = 0.5
"""Then one so often: each costs a broker a tenth of a millisecond, which others would wait for."""
WATCH_HEARTBEAT_MS = 10_000
"""After so long without records a stream says that it is alive."""
WATCH_DRAIN_MS = 2_000
"""What a client that does not read gets to take its stream's end when the broker stops."""
WATCH_READ_BYTES = READ_INLINE_BYTES_MAX
"""Batches that a stream reads at a time, one at least: what it holds while its client is slow."""
WATCH_LINES_BYTES = 256 << 10
"""NDJSON that a stream makes at a time."""
PRODUCE_TIMEOUT_MS_DEFAULT = 30_000
PRODUCE_TIMEOUT_MS_MAX = 300_000
OFFSETS_TIMEOUT_MS = 10_000
"""What a broker that passes a question for an offset on to the leader waits for the answer ..."""
DELETE_TIMEOUT_MS = 30_000
"""... and for that to a deletion of records."""
PROXY_MARGIN_MS = 5_000
"""What a leader gets beyond the time that the request itself may take."""
PEER_KEY_BYTES = 24
"""Random ones, by which brokers know each other's requests."""
PROXY_HOPS_MAX = 1
"""A proxied request is never proxied again: two brokers with different views must not bounce it."""
REQUEST_BYTES_IN_FLIGHT_MAX = 512 << 20
"""Bodies of requests, as far as they have arrived, that a broker holds at one time; above it clients are told to wait
(429)."""
ANSWER_BYTES_IN_FLIGHT_MAX = 512 << 20
"""Records on their way to clients that a broker holds at one time; above it clients are told to wait (429)."""
ANSWER_BYTES_MIN = 64 << 10
"""An answer is not made smaller than this to fit; where there is no room for it the request is refused."""
PROCESS_BYTES = 128 << 20
"""Of the memory that a broker may use, for the process itself, with what it loads for JSON."""
MEMORY_SHARE_OF_BUDGET = 0.2
"""Of the rest, for each of three: bodies of requests, answers, JSON that is made or read."""
BUDGET_BYTES_MIN = 16 << 20
"""Of each, however little memory there is: less would refuse a batch of the usual largest size."""
BROKER_MEMORY_BYTES_MIN = PROCESS_BYTES + 3 * BUDGET_BYTES_MIN
"""What a broker may be told to keep to: it cannot keep to less."""
JSON_BYTES_IN_FLIGHT_MAX = 512 << 20
"""What JSON that is being made or read may take in memory; above it the next one waits for its turn."""
JSON_BATCH_BYTES_MIN = 16 << 20
"""A batch that is no larger once it is decompressed is shown as JSON, however little memory there is."""
JSON_MEMORY_FACTOR = 8
"""So many times its size records take while they are turned into JSON or back."""
BODY_CHECK_INLINE_BYTES_MAX = 2 << 20
"""Batches of one produce whose bodies are checked on the event loop: it takes fifty microseconds a mebibyte."""
BODY_CHECK_INLINE_UNPACKED_BYTES_MAX = 64 << 10
"""The same of compressed ones, once they are decompressed: a tenth of a millisecond, most of it whatever their size."""
REQUESTS_IN_FLIGHT_MAX = 8192
"""Requests under way over all connections, long polls included; above it clients are told to wait (429)."""
CONTROL_REQUESTS_IN_FLIGHT_MAX = 16
"""The same for what operators and `headrace cluster recover` ask a broker: no load of clients keeps them waiting."""
CONTROL_BYTES_IN_FLIGHT_MAX = 16 << 20
"""Bodies of those."""
CONTROL_UPLOADS_MAX = 64
"""Those whose bodies are on their way in, which take no place until they are there; one more ends the oldest ..."""
CONTROL_BODY_TIMEOUT_MS = 5_000
"""... of whoever has most, and each ends after so long."""
CONTROL_TIMEOUT_MS = 10_000
"""What a broker that passes such a request on to another one waits for its answer."""

# Sessions
SESSIONS_MAX = 1024
"""Sessions that one broker serves; above it clients are told to wait (429)."""
SESSION_WINDOWS_PART = 16
"""The windows of all sessions together are such a part of what bodies may take: nobody has made room for them."""
SESSION_CHANNELS_MAX = 4096
"""Channels that one session has open at once; one more is refused by itself (429)."""
SESSION_PRODUCES_PENDING_MAX = 1024
"""Produces of one channel that are not answered yet; one more fails the channel (429)."""
SESSION_FRAME_BYTES_MAX = REQUEST_BODY_BYTES_MAX
"""Batches in one PRODUCE."""
SESSION_JSON_BYTES_MAX = 64 << 10
SESSION_HEARTBEAT_MS = 10_000
"""After so long without a frame the broker says that it is alive."""
SESSION_READ_BYTES = READ_INLINE_BYTES_MAX
"""Batches that a session reads at a time, one at least: what it holds while its client is slow."""
SESSION_COLD_READ_BYTES = 4 << 20
"""The same in a thread, for a reader that is behind: each costs a hand-over to the thread and back."""
SESSION_COLD_READS_MAX = 4
"""Reads of one session that have to wait for the disk, under way or waiting to be sent."""
SESSION_ANSWERS_BYTES_MAX = 1 << 20
"""Answers that a client has not taken; above it nothing more is read of what it sends."""
SESSION_GROUP_FRAMES_MAX = 64
SESSION_GROUP_BYTES = 1 << 20
"""Produces that are appended in one go; frames that are handled, or sent, before the event loop has its turn."""
SESSION_ROOM_STALLS_MAX = 8
"""A frame that room is kept for comes within so many times `HTTP_STALL_MS`, however slow its client is."""
SESSION_JOINED_BYTES = 64 << 10
"""Frames of batches up to this size in all are copied into one piece: each piece costs more than the copy."""

# Partitions
APPENDS_WAITING_MAX = 10_000
"""Appends of one partition that wait for their acknowledgement; above it clients are told to wait (429)."""
CUT_RETRY_MS = 1_000
"""A follower's log that cannot be cut, for want of room or files or for damage, is tried again so much later."""
PARTITION_TICK_MS = 100
"""How often a partition with waiters looks at the time: expiry is this exact."""
LOGS_OPENING_MAX = 8
"""Logs that a starting broker recovers at the same time."""
HOLDING_NEWS_MS = 100
"""While other actions on partitions are under way, those that have ended are looked at this often."""
HOLDING_RETRY_MS = 2_000
"""After an action on a partition's data has failed, it is looked at again no sooner than this for that reason."""
HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = 5_000
"""How far the checkpoint on disk may be behind: recovery tells with it whether committed records are missing."""
ORPHAN_PURGE_INTERVAL_MS = 3_600_000
HOUSEKEEPING_INTERVAL_MS_DEFAULT = 60_000
"""Each open partition is looked at this often for segments that are too old; for all other reasons, at once."""
HOUSEKEEPING_INTERVAL_MS_MIN = 10
"""Of what it may be told: below it a broker would do little else."""
HOUSEKEEPING_TICK_MS = 1_000
"""How soon "at once" is."""
HOUSEKEEPING_FULL_INTERVAL_MS = 5_000
"""The interval while the disk is full."""

# The disk
DISK_RESERVE_BYTES_MAX = 1 << 30
"""What stays free by default, or a twentieth of the volume where that is less."""
DISK_ROOM_TO_SPARE_BYTES_MAX = 256 << 20
"""A full disk takes appends again once there is so much room, or 1/64 of quota and volume where that is less."""
DISK_BALLAST_BYTES = 1 << 20
"""A file of this size is given up when others have filled the volume: a start writes a few blocks before all else."""
DISK_QUOTA_BYTES_MIN = 4 * DISK_BALLAST_BYTES
"""A smaller quota would be full with what a broker writes for itself."""
DISK_LOOK_INTERVAL_MS = 1_000
"""How often a broker asks how much its volume has free: others may write to it too."""
DISK_COUNT_INTERVAL_MS = 10_000
"""How often a broker counts its own files."""
DISK_COUNT_TIME_PART_MAX = 0.01
"""Counting many files takes no more than this part of the time; its interval grows instead."""

# HTTP/2
H2_STREAM_WINDOW_BYTES = 8 << 20
H2_REQUEST_WINDOW_BYTES = 64 << 10
"""A request's own, until its handler counts on more: nobody has made room for these bytes."""
H2_CONNECTION_WINDOW_BYTES = 64 << 20
H2_MAX_FRAME_BYTES = READ_INLINE_BYTES_MAX + (64 << 10)
"""A batch as producers make them by default, or what is read at once, and what is said around it: one frame."""
H2_MAX_CONCURRENT_STREAMS = 1000
H2_TASKS_MAX = 2 * H2_MAX_CONCURRENT_STREAMS
"""Handlers of one connection: more than its streams, because a task ends a little later than its stream."""
H2_HEADER_LIST_BYTES_MAX = 64 << 10
H2_SEND_BUFFER_BYTES = 4 << 20
"""What one connection may have waiting for its socket before senders wait."""
H2_STREAM_SEND_BUFFER_BYTES = 256 << 10
"""What one stream may have waiting for window or socket before its writer waits."""
H2_UNWRITTEN_BYTES_MAX = 256 << 10
"""What a socket may leave unwritten before the writers of its streams wait."""
H2_WRITE_BYTES = H2_MAX_FRAME_BYTES
"""Body bytes framed at a time, before the socket is asked to take them."""
H2_WRITES_PER_TURN = H2_SEND_BUFFER_BYTES // H2_WRITE_BYTES
"""Writes of one connection before others get the loop, or the lock."""
H2_JOINED_BYTES_MAX = 64 << 10
"""Payloads shorter than this are copied to what goes before and after them: one buffer less to write."""
H2_READ_BYTES = H2_MAX_FRAME_BYTES
"""The buffer that all connections of a server are read into, one after the other; a client's has its own."""
H2_READ_ROOM_BYTES_MIN = 64 << 10
"""What comes next is received into another buffer where less is left behind what is kept of this one."""
H2_READS_BEFORE_CALLERS_READ = 8
"""So often a blocking connection's thread reads for one caller alone, before that caller reads for itself."""
H2_CALLER_READS_MS_MAX = 10
"""A caller that has read for so long, and not what it waits for, leaves the reading to the thread again."""
H2_THREAD_LOOKS_MS = 10
"""So often the thread looks whether callers still read: an answer that nobody waits for may be late by twice this."""
H2_STREAMS_BEFORE_SETTINGS = 100
"""Streams that a client opens before it has heard the server's own limit (RFC 9113 6.5.2 recommends at least 100)."""
H2_GOAWAY_BYTES_MAX = 16 << 10
"""The longest GOAWAY that is read, its debug data included."""
H2_HEADER_BLOCK_BYTES_MAX = H2_HEADER_LIST_BYTES_MAX
"""A compressed head, over all its frames."""
H2_HEADER_FIELDS_MAX = 256
H2_CONTINUATIONS_MAX = 32
"""Frames that one head may go on in: many small ones cost as much as large ones and carry nothing (CVE-2024-27316)."""
H2_HEADER_TABLE_BYTES = 4096
"""HPACK's dynamic table, in each direction; RFC 9113 has this as the default."""
H2_HEADS_REMEMBERED_MAX = 16
"""Decoded heads that a connection keeps by their bytes: clients send the same few again and again."""
H2_REMEMBERED_HEAD_BYTES_MAX = 2 << 10
"""Of one of them: idle connections must stay cheap, whatever their heads were."""
H2_SETTINGS_MAX = 64
"""Settings in one SETTINGS frame."""
H2_RESETS_MAX = 2_000
"""Streams that a peer may reset, or have us reset by its mistakes, in a hurry (CVE-2023-44487, CVE-2025-8671) ..."""
H2_RESETS_PER_SECOND = 200
"""... and for as long as it likes."""
H2_IDLE_FRAMES_MAX = 10_000
"""Frames in a hurry that move nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown ones ..."""
H2_IDLE_FRAMES_PER_SECOND = 1_000
"""... and for as long as it likes."""
H2_IDLE_FRAMES_PER_FRAME = 8
"""Every HEADERS and DATA frame that we send earns its reader as many again: it answers with WINDOW_UPDATEs ..."""
H2_BYTES_PER_IDLE_FRAME = 1 << 10
"""... and some readers with two for every few KiB that they take."""
H2_RESETS_REMEMBERED_MAX = 1_000
"""Streams that we reset and whose late frames are ignored; of older ones they are an error."""
RETRY_AFTER_S = 1
"""What clients are told to wait: elections and throttling pass about that fast."""
HTTP_LINGER_MS = 1_000
"""What a client gets to stop its upload after its answer is complete; until then the bytes are discarded."""
HTTP_FIRST_BYTES_TIMEOUT_MS = 30_000
"""A new connection must show within this time which protocol it speaks; over HTTP/1.1 by a whole head."""
HTTP_FIRST_BYTES_MAX = 64 << 10
"""Of such a head; what is longer is left to the parser, which refuses it."""
HTTP_UNDECIDED_MAX = 512
"""Connections that have not shown their protocol yet; one more ends the oldest."""
HTTP_CONNECTIONS_MAX = 4096
"""Of clients, at one broker; above it new ones are told to go (429, or GOAWAY)."""
HTTP_IDLE_MS = 600_000
"""A connection without a request for so long is closed, as Kafka does (connections.max.idle.ms)."""
HTTP_STALL_MS = 60_000
"""A client that is to send or to take something must move `HTTP_STALL_BYTES` in this time, or it is cut off."""
HTTP_STALL_BYTES = 64 << 10

# TLS
TLS_HANDSHAKE_TIMEOUT_MS = 10_000
"""A client gets this long to finish its handshake: until then a connection costs memory and can do nothing."""
TLS_HANDSHAKES_MAX = 512
"""Handshakes under way at once, some 300 KiB each; one more ends the oldest."""
TLS_FILE_BYTES_MAX = 1 << 20
"""Of a certificate, key or CA bundle; a Secret cannot hold more either."""
TLS_FILES_INTERVAL_MS = 1_000
"""How often a broker reads its certificate files again; what differs is taken when two readings agree."""

# Coordination
LEASE_DURATION_MS = 10_000
LEASE_RENEW_INTERVAL_MS = 3_000
LEASE_REGRESSED_MAX = 1_000
"""Topics that a broker names in its Lease because their epochs went back."""
FOLLOWER_AWAY_MS = 1_000
"""A follower whose stream has ended for longer is away: connections that broke are back by then."""
REPLICA_LAG_MS_MAX = 10_000
"""A follower that was not caught up for longer leaves the ISR (Kafka's `replica.lag.time.max.ms`)."""
ISR_TICK_MS = 500
"""How often a broker looks whether a partition that it leads wants another ISR, while a replica of it is missing ..."""
ISR_LOOK_INTERVAL_MS = 2_500
"""... and while none is: a follower that lags is noticed so much later at most."""
SET_WRITE_INTERVAL_MS_MIN = 100
"""Between two writes of one broker to the same PartitionSet: what comes up meanwhile is one write."""
SET_CALLS_MAX = 8
"""Writes and reads of PartitionSets that one broker has on their way at once, each of another set."""
RECONCILE_RESYNC_MS = 15_000
RECONCILE_BACKOFF_MAX_MS = 2_000
"""Between passes of the operator that failed: a partition without a leader waits for the next one."""
RECONCILE_INTERVAL_MS_MIN = 100
"""Between two passes of the operator at least, however much is going on."""
HELD_TOPICS_MAX = 20
"""Topics in one question to a broker about what it holds of them."""
PROMISES_RETRY_MS = 1_000
"""While nobody in an ISR can lead, brokers are asked this often what they hold."""
PROMISES_TIMEOUT_MS = 5_000
PROMISES_ASKED_MAX = 10_000
"""Partitions in one request for promises."""
PROMISES_BODY_BYTES_MAX = 4 << 20
"""Of such a request."""
PROMISES_BYTES_MAX = 16 << 20
"""Of an answer to it."""
OPERATOR_LEASE_DURATION_MS = 6_000
"""An operator that has not renewed its Lease for so long acts no more, and another takes over."""
OPERATOR_LEASE_RENEW_MS = 2_000
OPERATOR_PULSE_MS = 500
"""How often the operator looks whether its process has been running all the time."""
OPERATOR_STALL_MS_MAX = 60_000
"""An operator whose loop has not come round for this long reports itself unhealthy."""
LEADER_RETURN_DELAY_MS = 5_000
"""A broker must have been ready for so long, in one life, before leaderships return to it or data moves there."""
LEADER_RETURNS_MAX = 50
"""Leaderships that return to their preferred leaders in one pass of the operator; each is a short interruption."""
REASSIGNMENTS_MAX = 10
"""Partitions of a cluster that copy data to new replicas at the same time."""
FINALIZER_WAIT_MS = 30_000
"""A deleted Topic waits this long at most for its brokers to delete the data."""
API_REQUEST_TIMEOUT_MS = 5_000
"""A request to the API server that takes longer is given up; whether it landed is then unknown."""
API_CONNECT_TIMEOUT_MS = 3_000
API_READ_PAUSES_MS = (50, 250)
"""What is read is asked for again after these, more or less, where the API server answers 429 or 5xx."""
API_LINE_BYTES_MAX = 2 << 20
"""The longest line of a watch: an object has 1.5 MiB at most."""
KUBE_AUTHORIZATION_AGE_MS_MAX = 60_000
"""Whoever logs in to the API server by a header reads it anew after this time: tokens are short-lived."""
RECORDED_EVENTS_MAX = 512
"""Kubernetes Events that a process remembers, so that a repeat raises a count instead of adding one more."""
EVENTS_PENDING_MAX = 64
"""Events that a broker has on their way at once; of more only its log tells."""
API_BACKOFF_MIN_MS = 100
API_BACKOFF_MAX_MS = 10_000
WATCH_SILENCE_MS_MAX = 60_000
"""A watch that has not ended or said anything for this long is started again."""
CAS_RETRIES_MAX = 20
DRAIN_TIMEOUT_MS = 20_000
HURRY_TIMEOUT_MS = 1_000
"""What requests in flight get when a broker must not go on."""
HANDOVER_TIMEOUT_MS = 15_000
"""A broker that is asked to stop waits so long at most for others to take over what it leads ..."""
DECOMMISSION_TIMEOUT_MS = 600_000
"""... and so long, where its ordinal is above the StatefulSet's replicas, for others to hold all that it holds."""
DATA_DIRECTORY_WAIT_MS = 5_000
"""So long a broker waits at its start for another one to let go of its data directory.

One whose Pod was deleted by force may still be ending when the next one begins on the same machine.
"""
CATCH_UP_TIMEOUT_MS = 600_000
"""So long after it was asked, at most, it stays in sync for replicas that catch up. A Pod's grace is more than that."""
CATCH_UP_LOOK_MS = 500
"""How often it looks whether they have."""
WAITED_FOR_NAMED_MAX = 20
"""Partitions that its log names then."""
DECOMMISSION_LOOK_MS = 2_000
"""How often such a broker asks what the StatefulSet says by now."""
HANDOVER_POLL_MS = 50
"""How often it looks whether they have."""
STEP_DOWN_TIMEOUT_MS = 2_000
"""What a broker that stops gets to leave the ISRs that can do without it."""
API_AWAY_REMINDER_MS = 60_000
"""How often a broker that waits for the API server at its start says so."""

# Replication streams
REPLICATION_IN_FLIGHT_BYTES_MAX = 8 << 20
"""Batches of one partition that a follower was sent and has not reported; one batch is sent whatever its size."""
REPLICATION_STREAM_BYTES_MAX = 8 << 20
"""The same over all partitions of a stream that do not have everything: votes of those that do wait behind no more."""
REPLICATION_BEHIND_BYTES_MAX = 16 << 20
"""A follower that was sent so much without reaching the end of the log catches up on a stream of its own."""
REPLICATION_READ_BYTES = READ_INLINE_BYTES_MAX
"""Batches in one frame, one at least: a follower appends so much before its loop turns."""
REPLICATION_WATERMARK_MS = 50
"""So late at most a follower hears of a high watermark with which no batches come."""
REPLICATION_TICK_MS = 500
"""How often each side of a stream looks at the time."""
REPLICATION_ALIVE_MS = 1_000
"""How often each side says that it is alive, whatever else it says."""
REPLICATION_REPEAT_MS = 2_000
"""How often at most a follower's sign of life counts as a report of each of its partitions."""
REPLICATION_SILENCE_MS_MAX = 2_500
"""A side of a stream that has said nothing for so long is gone."""
REPLICATION_HELLO_MS_MAX = 5_000
"""A stream that has not said whose it is within this time ends, whatever else comes."""
REPLICATION_STREAMS_UNKNOWN_MAX = 64
"""Streams that have not said whose they are; one more ends the oldest. Of the others each broker has one in a lane."""
REPLICATION_IDLE_MS = 5_000
"""A stream without partitions is closed after this."""
REPLICATION_UNREPORTED_BYTES = 1 << 20
"""A report that changes no vote waits for the next that does, until so much was received, or a second is over."""
REPLICATION_RECENT_BYTES_MAX = 8 << 20
"""What was appended or read just now is kept for followers, up to this over all partitions ..."""
REPLICATION_RECENT_RUNS_MAX = 4096
"""... and in so many pieces."""
REPLICATION_JOINED_BYTES = 64 << 10
"""Batches that are appended together are one piece up to this."""
REPLICATION_BACKOFF_MIN_MS = 50
REPLICATION_BACKOFF_MAX_MS = 1_000
"""Between two attempts of a follower to reach its leader, or to follow one partition."""
REPLICATION_DRAIN_MS = 2_000
"""A broker that stops goes on replicating for so long at most where clients wait for their acknowledgement."""
REPLICATION_DRAIN_LOOK_MS = 20
"""How often it looks whether anybody waits."""
REPLICATION_CHANNELS_MAX = 1 << 14
"""Partitions that one broker follows of another at once."""
REPLICATION_BYTES_HELD_MAX = 64 << 20
"""Batches on their way to followers that a broker holds at one time, apart from those for its clients."""
REPLICATION_CATCH_UP_RATE_MIN = 64 << 10
"""Bytes a second: with less catching up would never end."""

# Clients
PRODUCER_BATCH_BYTES_DEFAULT = READ_INLINE_BYTES_MAX
"""A producer closes a batch at this size, or at the topic's `maxMessageBytes` where that is smaller."""
PRODUCER_BUFFER_BYTES_DEFAULT = 64 << 20
"""Records that wait to be acknowledged, per producer; `send` waits above it."""
CONSUMER_PREFETCH_BYTES_DEFAULT = 64 << 20
"""What a consumer asks for ahead of its reader, over all its partitions together."""
ITERATOR_ROWS_MAX = 1 << 16
"""Rows that `send_batch` takes from an iterator at a time, or fewer where they reach its bytes first."""
ASYNC_SEND_BURST_RECORDS = 256
"""Sends of an `AsyncProducer` in a row that did not wait; then the event loop has its turn, or nothing would leave."""
PRODUCER_REQUESTS_MAX = 64
"""Batches that one producer has on their way at once, over all partitions."""
PRODUCER_PIPELINE_BATCHES_MAX = 8
"""Batches of one partition that a producer has on their way over a session: enough that neither side waits."""
FAILED_BATCHES_KEPT_MAX = 100
"""Failures that `flush` can still report; of older ones only their futures know."""
CONSUMER_REQUESTS_MAX = 64
"""Fetches that one consumer has on their way at once."""
OFFSET_REQUESTS_MAX = 16
"""Partitions whose offsets one client looks up at once."""
FETCH_BYTES_MIN = 64 << 10
"""A consumer of very many partitions asks each for at least this much."""
METADATA_TIMEOUT_MS = 5_000
"""Any broker can answer; one that is slower than this is not waited for."""
STICKY_BYTES = 64 << 10
"""Records without a key stay with one partition for so long, then go to the next (KIP-794)."""
PARTITION_CACHE_KEYS_MAX = 1 << 16
"""Keys whose partitions a client process remembers: keys repeat, and their hash is the dearest step of `send`."""
DELIVERY_TIMEOUT_MS_DEFAULT = 120_000
"""How long clients retry, and a batch may wait, before the error reaches the user (Kafka's delivery.timeout.ms)."""
UNKNOWN_TOPIC_GRACE_MS = 3_000
"""A topic may be a moment old: for this long an unknown topic is looked up again before it is an error."""
CLIENT_BACKOFF_MIN_MS = 50
CLIENT_BACKOFF_MAX_MS = 1_000
METADATA_AGE_MS_MAX = 60_000
"""Clients read a topic's metadata again after this long, so that they notice partitions that were added."""
UNREACHABLE_URL_MS = 20_000
"""A broker's URL that could not be reached is left alone for this long while other brokers can answer for it."""
TROUBLE_SILENT_MS = 1_000
"""What fails for longer than this is told, while it is tried again."""
TROUBLE_UNANSWERED_MS = 10_000
"""A request that has had no answer for longer than this is told."""
TROUBLE_INTERVAL_MS = 5_000
"""The same trouble is told this often."""
CLIENT_STALL_SLACK_MS = 30_000
"""Beyond all time limits (connecting, metadata, the request): a client in which nothing moves for longer is broken."""
CLIENT_STALL_CHECK_MS = 1_000
"""How often those who wait look whether anything still moves."""
LEADER_SILENT_MS = 1_000
"""A leader that owes a producer an answer for longer may be none any more: another broker is asked who leads."""
FETCH_SILENT_MS = 3_000
"""The same for a consumer that waits for new records; a leader with nothing to say is silent for up to 10 s."""
LEADER_SEARCH_MS = 250
"""So often, at most, a client asks who leads instead of a silent leader."""
SESSION_SILENCE_MS_MAX = 25_000
"""A session in which a broker says nothing for longer, not even that it is alive, is dead: it says so every 10 s."""
CONSUMER_FRAME_BYTES_MAX = 1 << 20
"""What a broker pushes to a consumer at a time, of what the consumer has room for."""
FETCH_LONG_POLL_MS = 2_000
"""A consumer's fetch waits this long at the broker for new records, and a paused or moved partition at most so long."""

# headrace dev
DEV_POD_GRACE_MS = 1_000
"""How long a Pod that was deleted stays Terminating; its process is killed at once."""
DEV_BROKERS_MAX = 16
"""Broker processes on one machine: `kubectl scale` of a typing error must not fork a hundred."""
DEV_LOG_BYTES_MAX = 10 << 20
"""A log file of a child process is moved aside when it is larger at the start of the next life."""

# The embedded Kubernetes API of `headrace dev`
DEV_WATCH_HISTORY_MAX = 4096
DEV_WATCH_HISTORY_BYTES_MAX = 8 << 20
"""Changes of one resource that watchers may still ask for, by number and by size; older ones are answered with 410."""
DEV_REQUEST_BODY_BYTES_MAX = 3 << 20
"""As a kube-apiserver's own limit."""
DEV_UPDATE_MANAGERS_MAX = 10
"""As many writers of an object are told apart in its managedFields, beside those that apply it."""
DEV_MANAGER_NAME_BYTES_MAX = 128
"""As a kube-apiserver's own limit."""
DEV_LOG_READ_BYTES = 64 << 10
"""`kubectl logs` reads a file in pieces of this size."""
DEV_LOG_LINE_BYTES_MAX = 1 << 20
"""A longer line of a log is shown in parts."""
DEV_LOG_POLL_MS = 200
"""`kubectl logs -f` looks this often whether a log has grown."""
DEV_PROXY_CONNECTIONS_MAX = 512
"""Requests that pass through the embedded API's proxy at once; others wait for one of them to end."""
DEV_WATCH_TIMEOUT_S = 1_800
"""A watch that does not say `timeoutSeconds` ends after this, so that clients re-list now and then."""
DEV_BOOKMARK_INTERVAL_S = 30
DEV_EVENT_TTL_S = 3_600
"""Events are records of the moment: they expire as on a cluster."""

# Consumer groups
GROUP_MEMBERS_MAX = 1000
GROUP_TOPICS_MAX = 256
"""Topics that one member names, and that one group consumes; of more that patterns find, the first by name."""
GROUP_PARTITIONS_MAX = 1 << 14
"""Partitions that one group consumes: a whole assignment fits into one batch of the offsets topic."""
GROUPS_PER_COORDINATOR_MAX = 10_000
"""Groups on one partition of the offsets topic: what their coordinator keeps in memory."""
COORDINATOR_UNANSWERED_MAX = 10_000
"""Requests whose records are not committed yet; a coordinator that is behind by more takes no others."""
COORDINATOR_COMMITS_UNANSWERED_MAX = 8_000
"""So many, and it takes no more offsets: members must be heard all the same."""
COORDINATOR_UNCOMMITTED_BYTES_MAX = 40 << 20
COORDINATOR_UNCOMMITTED_OFFSETS_BYTES_MAX = 32 << 20
"""The same two bounds, of the records themselves: a follower that lags must not fill the leader's memory."""
OFFSETS_PARTITIONS = 16
"""Of the offsets topic, for ever: a group's coordinator depends on their number."""
COORDINATOR_TICK_MS = 100
COORDINATOR_RELOAD_MS = 1_000
"""A coordinator that could not write or read its log begins again after this."""
COORDINATOR_APPENDS_IN_FLIGHT_MAX = 2
"""Calls that wait for the high watermark; what is decided meanwhile goes along with the next one. Two:
one is on its way while the next is written. With more, each has fewer commits, and costs every replica as much."""
COORDINATOR_APPEND_BATCHES_MAX = 256
COORDINATOR_APPEND_BYTES = 1 << 20
"""What one call appends: so many batches, and no more bytes than this, one batch at least."""
COORDINATOR_ENCODE_INLINE_BYTES_MAX = 64 << 10
"""Of one decision: a larger one is encoded in a thread, at some five microseconds a kilobyte."""
GROUP_BODY_BYTES_MAX = 8 << 20
"""Of a request about a group: a commit of OFFSETS_PER_COMMIT_MAX offsets with some metadata."""
JSON_INLINE_BYTES_MAX = 64 << 10
"""A longer body leaves the event loop to be parsed: a kilobyte takes ten microseconds."""
GROUP_LIST_TIMEOUT_MS = 2_000
"""What other brokers get to say which groups they coordinate."""
GROUP_HEARTBEATS_PASSED_ON_MAX = 3 * H2_MAX_CONCURRENT_STREAMS // 10
"""That wait at other brokers: more are passed on without a wait there."""
GROUP_REQUESTS_PASSED_ON_MAX = 2 * H2_MAX_CONCURRENT_STREAMS // 10
"""Of all else about groups, at one time: records go to other brokers by the same connections."""
JSON_INLINE_ITEMS_MAX = 500
"""Of an answer about groups: with more it leaves the event loop to be made, five microseconds for each."""
JSON_ITEM_BYTES = 200
"""What one is counted for until the answer is made."""
LOOK_ITEMS_MAX = 1_000
"""Groups that are looked at before others have the event loop."""
HEARTBEATS_IN_FLIGHT_MAX = 1 << 14
"""Heartbeats that wait at one broker: they hold next to nothing, and do not count among its other requests."""
DELETED_TOPICS_REMEMBERED_MAX = 1024
"""For coordinators that begin after the deletion: more are forgotten with the age of their offsets."""
OFFSETS_QUERY_LENGTH_MAX = 4_000
"""Partitions that are asked for by number: heads of requests have 8 KiB."""
RESET_ID_LENGTH_MAX = 63
"""As `spec.resetOffsets.id`: it stands in the group's record and in its status."""
TOPIC_UID_LENGTH_MAX = 64
"""Kubernetes gives 36."""
MEMBER_ID_LENGTH_MAX = 64
INSTANCE_ID_LENGTH_MAX = 253
"""As the name of a Pod."""
CLIENT_ADDRESS_LENGTH_MAX = 253
TOPIC_PATTERN_LENGTH_MAX = 256
TOPIC_PATTERN_STATES_MAX = 512
"""States of a pattern's automaton: what a look at one character costs at most."""
TOPIC_PATTERN_DEPTH_MAX = 32
"""Groups within groups."""
TOPIC_PATTERNS_KEPT_MAX = 256
"""Patterns that a process keeps ready: a group looks at its members' again with every topic that comes or goes."""
GROUP_SESSION_MS_DEFAULT = 45_000
GROUP_SESSION_MS_MIN = 1_000
GROUP_SESSION_MS_MAX = 1_800_000
"""What `spec.sessionTimeout` says beyond these counts as these: nobody heartbeats for ever, or without a pause."""
GROUP_HEARTBEAT_MS_MAX = 3_000
"""A member heartbeats three times in a session, and this often at least."""
GROUP_HEARTBEAT_MS_RECONCILING = 250
"""So often while partitions change hands, unless the member waits at the coordinator for news."""
STATIC_SILENT_HEARTBEATS = 2
"""A static member that missed so many may be replaced by another process of the same instance id."""
GROUP_RETRY_MS_MIN = 100
GROUP_RETRY_MS_MAX = 2_000
"""Pauses of a member between requests that are refused for now."""
GROUP_LEAVE_MS_MAX = 5_000
"""So long a member tries to say that it leaves; later its session ends by itself."""
MEMBER_REQUESTS_MAX = 8
"""Of one member, on their way: answers to older ones say nothing new."""
ASSIGNMENT_TIMEOUT_MS = 500
"""So long the coordinator waits for the operator's assignment before it makes its own."""
REBALANCE_TIMEOUT_MS_DEFAULT = 60_000
REBALANCE_TIMEOUT_MS_MIN = 1_000
REBALANCE_TIMEOUT_MS_MAX = 3_600_000
"""How long a member may take to give partitions up before it is removed."""
OFFSET_METADATA_BYTES_MAX = 4096
OFFSETS_PER_COMMIT_MAX = 4096
"""As many as `spec.resetOffsets` may name; more are committed in several requests."""
OFFSETS_BYTES_PER_COMMIT_MAX = 4 << 20
"""Of their records, which are one batch: below `maxMessageBytes` of the offsets topic, with room for the group's."""
GROUP_OFFSETS_MAX = 1 << 15
"""Partitions of which a group remembers offsets: twice what it may consume, for topics that come and go. To forget
them all is one batch, too."""
GROUP_EXPIRY_INTERVAL_MS = 60_000
"""So often each group looks for offsets that are too old, and forgets OFFSETS_PER_COMMIT_MAX of them at most."""
AUTO_COMMIT_INTERVAL_MS_DEFAULT = 5_000
MAX_POLL_INTERVAL_MS_DEFAULT = 300_000
"""How long a consumer's user may keep what he was handed before his consumer leaves the group for him."""
GROUP_REQUEST_TIMEOUT_MS = 5_000
"""What a client gives one try of a request about its group; there are many tries in a session."""
PROGRESS_TIMEOUT_MS = 1_000
"""A report of a Spark query's progress is given up after it: the query waits so long."""
PROGRESS_PAUSE_MS = 1_000
"""After one that failed none is tried for so long, ..."""
PROGRESS_PAUSE_FACTOR = 10
"""... nor for so many times what it took: brokers that do not answer cost a query a tenth of its time at most."""
PROGRESS_PATIENCE_MS = 10_000
"""What may be a matter of time is warned of when it has lasted so long: a cluster's first group waits for its topic."""
PROGRESS_REPEAT_MS = 60_000
"""So often what has not changed is reported again, as offsets are forgotten by the time of their last report."""
GROUP_LOOK_MS_MAX = 500
"""So often at least a client looks after its place in its group: whether its user stalls, what is to be committed."""
CONSUMER_CLOSE_MS_DEFAULT = 10_000
"""Closing a consumer takes no longer, whoever is silent: well below the 30 s that Pods get. A fourth of it is kept for
saying that it leaves, the rest for its last commit."""
CONSUMER_LEAVE_MS_MIN = 1_000
"""So long it tries to say so, even where callbacks took all the time there was."""
CONSUMER_TURN_MS = 50
"""An asyncio consumer gives the loop back at least so often, however much there is to hand out."""
INTERNAL_REPLICAS_MAX = 3
"""Of an internal topic, in a cluster that has as many brokers."""
OFFSETS_SEGMENT_BYTES = 16 << 20
"""Of the internal topic: what is written to is not compacted, and a new coordinator reads each of its commits."""
OFFSETS_MESSAGE_BYTES = 8 << 20
"""Of the internal topic, at least: a group's whole assignment is one batch."""
GROUP_CALLS_MAX = 8
"""Writes of ConsumerGroups that the operator has on their way at once."""
GROUP_WRITES_PER_PASS_MAX = 64
"""Of the operator, the most urgent first: whoever waits for an assignment does not wait for a thousand conditions."""
GROUP_ERRANDS_MAX = 16
"""Deletions and resets that the operator has on their way at once."""
GROUP_ERRAND_RETRY_MS = 2_000
"""So soon the operator asks again for what could not be done: a group that has members, a broker that is away."""
GROUP_ERRAND_REQUESTS_MAX = 8
"""Of one of them: a reset of ten thousand partitions holds up no other."""
GROUP_ERRAND_TIMEOUT_MS = 10_000
"""Of one of its requests: a broker passes it on to the coordinator, which waits for its log."""
GROUP_PASS_INTERVAL_MS_MIN = 20
"""Between two looks of the operator at groups: the coordinator waits for an assignment, but not for long."""
GROUP_EVENT_INTERVAL_MS = 30_000
"""Of one kind people hear so often at most, for each group: a group that rebalances all the time is one Event."""
GROUP_STATUS_INTERVAL_MS = 1_000
"""Between two writes of one broker to the status of the same ConsumerGroup ..."""
GROUP_LAG_STATUS_INTERVAL_MS = 10_000
"""... and where nothing but the lag is new."""
GROUP_WRITES_PER_SECOND_MAX = 20
"""Of one broker, to all ConsumerGroups together ..."""
GROUP_LAG_WRITES_PER_SECOND_MAX = 5
"""... and of those, where nothing but the lag is new: with more than fifty such groups each is written less often."""
GROUP_CHANGES_IN_A_ROW_MAX = 9
"""Then a lag is next, however many changes wait."""
GROUP_WRITES_IN_FLIGHT_MAX = 8
GROUP_UNUSED_MS = 60_000
"""A ConsumerGroup that brokers created, and that nobody joined, is deleted once its coordinator has waited so long."""
GROUPS_WANTED_MAX = 16
"""ConsumerGroups that a broker is about to create for groups that have no coordinator yet: the first brings it for all,
and clients ask again."""
GROUPS_NEW_BURST = 500
"""Groups that one client may bring into being at once, at one broker ..."""
GROUPS_NEW_INTERVAL_MS = 1_000
"""... and one more so often: each is an object of the cluster's API."""
GROUPS_NEW_CLIENTS_MAX = 4_096
"""Clients of whom a broker remembers that."""
GROUP_WANTED_MS = 60_000
"""So long it tries, after somebody has asked last."""
GROUP_REFUSED_MS_MIN = 10_000
GROUP_REFUSED_MS_MAX = 600_000
"""Pauses after what the API server refuses for good: until somebody makes a namespace, or grants a right."""
GROUP_LAG_INTERVAL_MS = 5_000
"""So often a coordinator asks leaders how far its groups are behind ..."""
GROUP_LAG_INTERVAL_MS_MIN = 1_000
"""... and so soon at the earliest, for groups of which it has never asked."""
GROUP_LAG_PARTITIONS_MAX = 1 << 16
"""Partitions that one broker asks about each time: the lag of groups that have others is not known."""
WATERMARKS_ASKED_MAX = 4096
"""Partitions in one request for watermarks."""
WATERMARKS_REQUESTS_IN_FLIGHT_MAX = 64
"""At one broker, besides those who elect: other brokers ask every few seconds."""
WATERMARKS_BODY_BYTES_MAX = 1 << 20
WATERMARKS_TIMEOUT_MS = 2_000
"""A leader that does not tell its watermarks within this: the lag of its partitions is not known."""
GROUPS_IN_METRICS_MAX = 2_000
GROUP_LAG_SERIES_MAX = 20_000
"""Groups of which a broker shows metrics, and partitions of which it shows their lag; more are only counted."""
GROUP_PAUSES_INTERVAL_MS = 10_000
"""So often coordinators are told how long pauses take that end by the clock on the wall."""

# Staged commits
COMMITS_PARTITIONS = 8
"""Of the commits topic, for ever: a writer's coordinator depends on their number."""
STAGING_PARTITIONS_EACH = 4
"""Partitions of the staging topic that belong to each of them: one writer's stages are spread over so many."""
STAGING_PARTITIONS = COMMITS_PARTITIONS * STAGING_PARTITIONS_EACH
STAGING_MESSAGE_BYTES = 64 << 20
"""Of the staging topic: whatever a topic takes can be staged."""
STAGED_BATCHES_MAX = 50_000
"""Record batches of one commit: a decision is one record, and their places stand in it."""
COMMIT_BODY_BYTES_MAX = 8 << 20
"""Of a request to commit."""
COMMIT_WAIT_MS_MAX = 60_000
"""So long its answer waits at most until everything is in its partition."""
WRITER_NAME_LENGTH_MAX = 200
WRITERS_PER_COORDINATOR_MAX = 10_000
WRITER_REQUESTS_MAX = 1_000
"""That one coordinator has yet to answer."""
WRITER_RETENTION_MS = 30 * 86_400_000
"""A query that commits nothing for so long is forgotten: what it repeats then is written again."""
WRITER_ONCE_RETENTION_MS = 86_400_000
"""The same of a job that has one batch."""
STAGE_EXPIRY_MS = 12 * 3_600_000
"""What nobody has committed for so long belongs to an attempt that is dead."""
STAGING_LOOK_INTERVAL_MS = 10_000
"""So often a coordinator looks what of its stages can be deleted."""
STAGE_BATCH_BYTES = 2 << 20
"""Of a batch that is staged, where the topic takes as much: it is read again, and written a second time, as it is."""
STAGE_BUFFER_BYTES = 64 << 20
"""What one attempt gathers, for all partitions, before it is staged."""
COMMIT_TIMEOUT_MS = 300_000
"""A writer waits so long for its commit: for the decision, and until everything is in its partition."""
ROLL_SHARES_MAX = 8
"""Partitions that one coordinator gives their shares at the same time."""
ROLL_BYTES = 4 << 20
"""Of one request to a partition's leader, or one batch, whatever its size."""
ROLL_RETRY_MS_MIN = 100
ROLL_RETRY_MS_MAX = 5_000
"""Pauses after what could not be written just now: for as long as it takes, because it is committed."""

# Spark
SPARK_ROWS_MAX = 1 << 16
"""Rows of one Arrow batch that Spark is given: its JVM holds a few of them for each task ..."""
SPARK_ROWS_GATHERED = 1 << 15
"""... and small batches of a partition are joined until they have so many, since each costs Spark the same, ..."""
SPARK_BYTES_GATHERED = 4 << 20
"""... or so many bytes."""
SPARK_ROWS_PER_TRIGGER_DEFAULT = 2_000_000
"""A trigger costs Spark 0.2 to 0.4 s whatever it reads."""
SPARK_PREFETCH_BYTES = 32 << 20
"""What a task asks for ahead of Spark."""
SPARK_STILL_MS_MAX = 3_000
"""A task that has got nothing for so long asks whether the records that it waits for are still there."""
SPARK_SAMPLE_BYTES = 64 << 10
"""Read of a partition to estimate how large its next records are, for `maxBytesPerTrigger`."""
SPARK_TRIGGER_DELAY_MS_DEFAULT = 900_000
"""`minOffsetsPerTrigger` holds a trigger back for so long at most (Kafka's maxTriggerDelay)."""
SPARK_IDLE_READERS_MAX = 4
"""Clients that a Python worker of Spark keeps for its next tasks, of one cluster."""
