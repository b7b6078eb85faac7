"""Every bound of Headrace, by name (house rule 5). Units stand last in the names."""

# Records and batches
BATCH_HEADER_BYTES = 64
BATCH_BYTES_MAX = 1 << 30
"""What a batch header may claim at most; a topic's `maxMessageBytes` is the bound that users set."""
BATCH_RECORDS_MAX = 1 << 24
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
SEGMENT_BYTES_MAX = (1 << 32) - 1
"""Positions in an index have 32 bits; a larger `segment.bytes` rolls here."""
SEGMENT_OFFSETS_MAX = (1 << 32) - 1
RECOVERY_SCAN_BYTES = 64 << 20
"""The recovery point follows the durable end this closely: a start after a crash scans no more per partition."""
REPLICATED_SYNC_BYTES = 64 << 20
"""Durability Replicated: synced in the background each time this much was appended."""
RECOVERY_CHUNK_BYTES = 4 << 20
UNSYNCED_SEGMENTS_MAX = 8
"""Closed segments that wait for their sync; where syncs do not keep up, the active segment grows instead."""
CLOSED_SEGMENTS_OPEN_MAX = 4
"""Closed segments that one partition keeps open for its readers."""
READ_POSITIONS_MAX = 64
"""Ends of recent reads that one partition remembers: the next fetch of a consumer starts there."""
SYNC_THREADS_MAX = 16
READ_THREADS_MAX = 8
"""Threads of their own: readers of cold data never stand before an `fdatasync`."""
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
WATCH_HEARTBEAT_MS = 10_000
"""After so long without records a stream says that it is alive."""
WATCH_DRAIN_MS = 2_000
"""What a client that does not read gets to take its stream's end when the broker stops."""
WATCH_READ_BYTES = 1 << 20
"""Batches that a stream reads at a time, one at least: what it holds while its client is slow."""
WATCH_LINES_BYTES = 256 << 10
"""NDJSON that a stream makes at a time."""
PRODUCE_TIMEOUT_MS_DEFAULT = 30_000
PRODUCE_TIMEOUT_MS_MAX = 300_000
PROXY_HOPS_MAX = 1
"""A proxied request is never proxied again: two brokers with different views must not bounce it."""
REQUEST_BYTES_IN_FLIGHT_MAX = 512 << 20
"""Bodies of produce requests that a broker holds at one time; above it clients are told to wait (429)."""

# Partitions
APPENDS_WAITING_MAX = 10_000
"""Appends of one partition that wait for their acknowledgement; above it clients are told to wait (429)."""
PARTITION_TICK_MS = 100
"""How often a partition with waiters looks at the time: expiry is this exact."""
LOGS_OPENING_MAX = 8
"""Logs that a starting broker recovers at the same time."""
HOLDING_RETRY_MS = 2_000
"""After an action on a partition's data has failed, it is looked at again no sooner than this for that reason."""
HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = 5_000
"""How far the checkpoint on disk may be behind: recovery tells with it whether committed records are missing."""
ORPHAN_PURGE_INTERVAL_MS = 3_600_000

# HTTP/2
H2_STREAM_WINDOW_BYTES = 8 << 20
H2_CONNECTION_WINDOW_BYTES = 64 << 20
H2_MAX_FRAME_BYTES = 1 << 20
H2_MAX_CONCURRENT_STREAMS = 1000
H2_HEADER_LIST_BYTES_MAX = 64 << 10
H2_SEND_BUFFER_BYTES = 4 << 20
"""What one connection may have waiting for its socket before senders wait."""
H2_STREAM_SEND_BUFFER_BYTES = 256 << 10
"""What one stream may have waiting for window or socket before its writer waits."""
H2_WRITE_BYTES = 1 << 20
"""Body bytes framed at a time, before the socket is asked to take them."""
H2_READ_BYTES = 1 << 20
"""The buffer that one connection's socket is read into."""
H2_STREAMS_BEFORE_SETTINGS = 100
"""Streams that a client opens before it has heard the server's own limit (RFC 9113 6.5.2 recommends at least 100)."""
H2_GOAWAY_BYTES_MAX = 16 << 10
"""The longest GOAWAY that is read, its debug data included."""
HTTP_LINGER_MS = 1_000
"""What a client gets to stop its upload after its answer is complete; until then the bytes are discarded."""
HTTP_FIRST_BYTES_TIMEOUT_MS = 30_000
"""A new connection must show within this time which protocol it speaks."""

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
RECONCILE_RESYNC_MS = 15_000
RECONCILE_INTERVAL_MS_MIN = 100
"""Between two passes of the operator at least, however much is going on."""
OPERATOR_PULSE_MS = 500
"""How often the operator looks whether its process has been running all the time."""
OPERATOR_STALL_MS_MAX = 60_000
"""An operator whose loop has not come round for this long reports itself unhealthy."""
FINALIZER_WAIT_MS = 30_000
"""A deleted Topic waits this long at most for its brokers to delete the data."""
API_REQUEST_TIMEOUT_MS = 5_000
"""A request to the API server that takes longer is given up; whether it landed is then unknown."""
API_CONNECT_TIMEOUT_MS = 3_000
KUBE_AUTHORIZATION_AGE_MS_MAX = 60_000
"""Whoever logs in to the API server by a header reads it anew after this time: tokens are short-lived."""
RECORDED_EVENTS_MAX = 512
"""Kubernetes Events that a process remembers, so that a repeat raises a count instead of adding one more."""
API_BACKOFF_MIN_MS = 100
API_BACKOFF_MAX_MS = 10_000
WATCH_SILENCE_MS_MAX = 60_000
"""A watch that has not ended or said anything for this long is started again."""
CAS_RETRIES_MAX = 20
DRAIN_TIMEOUT_MS = 20_000

# Clients
PRODUCER_BATCH_BYTES_DEFAULT = 1 << 20
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
FETCH_LONG_POLL_MS = 2_000
"""A consumer's fetch waits this long at the broker for new records, and a paused or moved partition at most so long."""

# headrace dev
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
