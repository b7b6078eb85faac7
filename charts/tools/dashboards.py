"""What is on each dashboard. `python -m charts.tools` writes them to charts/headrace/files/dashboards."""

from charts.tools.panels import Dashboard, Panel, Row, Variable, graph, stat

_JOB = Variable("job", "label_values(headrace_broker_partitions_led, job)")
_NAMESPACE = Variable("namespace", "label_values(headrace_broker_log_bytes, namespace)")
_ACTING = 'and on (job, instance) headrace_operator_acting{job=~"$job"} == 1'
_BROKERS = 'and on (job, instance) headrace_broker_partitions_led{job=~"$job"}'
_OF_TOPIC = 'job=~"$job", namespace=~"$namespace", topic=~"$topic"'
_OF_GROUP = 'job=~"$job", namespace=~"$namespace", group=~"$group"'
_WAITS = "/v1/sessions|.*/commits|.*/partitions/.*/records"
"""Routes whose requests last as long as a client asks for; producing to a partition has one of them."""
_TOPIC, _GROUP = "{{namespace}}/{{topic}}", "{{namespace}}/{{group}}"
_OF_JOB = 'job=~"$job"'
_LAGS = "namespace, group, topic, partition"
_BY_PARTITION = "namespace, topic, partition"


def _operator(metric: str, labels: str = "") -> str:
    """Of the operator that acts: others tell what they saw when they last did."""
    return f'max(headrace_operator_{metric}{{job=~"$job"{labels}}} {_ACTING})'


def _rate(metric: str, by: str, labels: str = 'job=~"$job"') -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def _quantile(quantile: str, metric: str, by: str, labels: str = "") -> str:
    return f"histogram_quantile({quantile}, {_rate(metric + '_bucket', f'{by}, le', _OF_JOB + labels)})"


def _request_time(labels: str, legend: str) -> tuple[str, str]:
    return _quantile("0.99", "headrace_broker_request_seconds", "method, route", labels), legend


def _once(metric: str, labels: str, by: str = "namespace, group") -> str:
    """Of each group, while two brokers tell of it: the old coordinator until it is scraped again, and the new one."""
    return f"max by ({by}) ({metric}{{{labels}}})"


_GROUP_STATE = f"headrace_group_state{{{_OF_GROUP}}}"
_STATES = (
    f"sum by (state) ({_GROUP_STATE} / on (namespace, group) group_left () sum by (namespace, group) ({_GROUP_STATE}))"
)
"""Each group counts once: while two brokers tell of it, half for the state that each of them says."""


def _both(title: str, metric: str, by: str, legend: str, *, labels: str = 'job=~"$job"', unit: str = "short") -> Panel:
    """What goes in and what goes out, in one picture."""
    ways = (("in", metric + "_in_total"), ("out", metric + "_out_total"))
    return graph(title, *((_rate(name, by, labels), f"{legend} {way}") for way, name in ways), unit=unit)


def _process(title: str, expr: str, unit: str = "short") -> Panel:
    return graph(title, (f"{expr} {_BROKERS}", "{{instance}}"), unit=unit)


CLUSTER = Dashboard(
    name="cluster",
    title="Headrace / Cluster",
    about="Is it well, what goes through it, and which broker does how much.",
    variables=(_JOB,),
    rows=(
        Row(
            "Is it well",
            (
                stat("Brokers ready", _operator("brokers", ', state="Ready"')),
                stat(
                    "Operators that act",
                    'sum by (cluster) (headrace_operator_acting{job=~"$job"})',
                    bad_from=2,
                    about="One for each cluster.",
                ),
                stat("Offline", _operator("offline_partitions"), bad_from=1, about="Partitions without a leader."),
                stat(
                    "Refusing writes",
                    'sum(headrace_broker_under_min_isr_partitions{job=~"$job"})',
                    bad_from=1,
                    about="Partitions with fewer replicas in sync than minInsyncReplicas.",
                ),
                stat(
                    "Under-replicated",
                    'sum(headrace_broker_under_replicated_partitions{job=~"$job"})',
                    bad_from=1,
                    about="Partitions with fewer replicas in sync than their topics ask for.",
                ),
                stat(
                    "Damaged",
                    'sum(headrace_broker_damaged_partitions{job=~"$job"})',
                    bad_from=1,
                    about="Partitions of which a disk has not kept what was written.",
                ),
                stat("Topics", _operator("topics")),
                stat("Partitions", _operator("partitions")),
            ),
        ),
        Row(
            "Traffic",
            (
                _both("Records", "headrace_broker_records", "instance", "{{instance}}", unit="cps"),
                _both("Bytes", "headrace_broker_bytes", "instance", "{{instance}}", unit="Bps"),
                _both("Replication", "headrace_broker_replication_bytes", "instance", "{{instance}}", unit="Bps"),
                graph("Requests", (_rate("headrace_broker_request_seconds_count", "route"), "{{route}}"), unit="reqps"),
                graph(
                    "Problems by code",
                    (f"{_rate('headrace_broker_errors_total', 'code')} or on () vector(0)", "{{code}}"),
                    unit="reqps",
                    about="Of brokers' answers, as docs/protocol.md lists them.",
                ),
                graph(
                    "Refused for load",
                    (_rate("headrace_broker_refused_total", "what"), "{{what}}"),
                    (_rate("headrace_broker_slow_clients_total", "job"), "slow clients cut off"),
                    unit="reqps",
                ),
            ),
        ),
        Row(
            "Latency",
            (
                graph(
                    "Requests, 99th percentile by route",
                    _request_time(f', method!="WATCH", route!~"{_WAITS}"', "{{method}} {{route}}"),
                    _request_time(', method=~"POST|DELETE", route=~".*/partitions/.*/records"', "{{method}} {{route}}"),
                    unit="s",
                    about="Those that wait as long as they are told to are in the next panel.",
                ),
                graph(
                    "Requests that wait, 99th percentile by route",
                    _request_time(', method=~"GET|WATCH", route=~".*/partitions/.*/records"', "{{method}} {{route}}"),
                    _request_time(', route=~"/v1/sessions|.*/commits"', "{{method}} {{route}}"),
                    unit="s",
                    logarithmic=True,
                    about="Fetches, streams, sessions, commits of writers: as long as their clients ask for.",
                ),
                graph(
                    "Sync of the disk",
                    (_quantile("0.5", "headrace_broker_fsync_seconds", "instance"), "{{instance}} median"),
                    (_quantile("0.99", "headrace_broker_fsync_seconds", "instance"), "{{instance}} 99th"),
                    unit="s",
                    about="An acknowledged record waits for one.",
                ),
            ),
        ),
        Row(
            "Balance and replication",
            (
                graph("Leaders", ('sum by (instance) (headrace_broker_partitions_led{job=~"$job"})', "{{instance}}")),
                graph(
                    "Followers behind",
                    (
                        'sum by (instance, follower) (headrace_broker_follower_lag_records{job=~"$job"})'
                        " or on () vector(0)",
                        "{{instance}} -> {{follower}}",
                    ),
                    about="Records that a follower has not reported yet.",
                ),
                graph(
                    "In-sync replicas",
                    (_rate("headrace_isr_shrinks_total", "instance"), "{{instance}} shrinks"),
                    (_rate("headrace_isr_expands_total", "instance"), "{{instance}} expands"),
                    unit="cps",
                ),
                graph(
                    "Elections",
                    (_rate("headrace_operator_leader_elections_total", "job"), "leaders elected"),
                    (_rate("headrace_operator_unclean_leader_elections_total", "job"), "of these unclean"),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Brokers",
            (
                graph(
                    "Disk",
                    ('sum by (instance, kind) (headrace_broker_disk_bytes{job=~"$job"})', "{{instance}} {{kind}}"),
                    unit="bytes",
                    about="Used by the broker's files; room is what may still be appended.",
                ),
                graph(
                    "Connections and requests",
                    ('sum by (instance) (headrace_broker_open_connections{job=~"$job"})', "{{instance}} connections"),
                    ('sum by (instance) (headrace_broker_requests_in_flight{job=~"$job"})', "{{instance}} requests"),
                    ('sum by (instance) (headrace_broker_sessions{job=~"$job"})', "{{instance}} sessions"),
                ),
                _process("CPU", 'rate(process_cpu_seconds_total{job=~"$job"}[$__rate_interval])', "percentunit"),
                _process("Memory", 'process_resident_memory_bytes{job=~"$job"}', "bytes"),
            ),
        ),
        Row(
            "Operator",
            (
                graph(
                    "Passes",
                    (_rate("headrace_operator_reconciles_total", "instance"), "{{instance}} passes"),
                    (
                        _rate("headrace_operator_reconcile_errors_total", "instance"),
                        "{{instance}} failed or conflicting",
                    ),
                    (_rate("headrace_operator_actions_total", "instance"), "{{instance}} actions"),
                    unit="cps",
                ),
                graph(
                    "Time of one pass, 99th percentile",
                    (_quantile("0.99", "headrace_operator_reconcile_seconds", "instance"), "{{instance}}"),
                    unit="s",
                ),
            ),
        ),
    ),
)

TOPICS = Dashboard(
    name="topics",
    title="Headrace / Topics",
    about="What each topic takes, gives and keeps, and its hottest partitions.",
    variables=(
        _JOB,
        _NAMESPACE,
        Variable("topic", 'label_values(headrace_broker_log_bytes{namespace=~"$namespace"}, topic)'),
    ),
    rows=(
        Row(
            "Traffic",
            (
                graph(
                    "Records in",
                    (_rate("headrace_broker_records_in_total", "namespace, topic", _OF_TOPIC), _TOPIC),
                    unit="cps",
                ),
                graph(
                    "Records out",
                    (_rate("headrace_broker_records_out_total", "namespace, topic", _OF_TOPIC), _TOPIC),
                    unit="cps",
                ),
                graph(
                    "Bytes in",
                    (_rate("headrace_broker_bytes_in_total", "namespace, topic", _OF_TOPIC), _TOPIC),
                    unit="Bps",
                ),
                graph(
                    "Bytes out",
                    (_rate("headrace_broker_bytes_out_total", "namespace, topic", _OF_TOPIC), _TOPIC),
                    unit="Bps",
                ),
                graph(
                    "Batches sent again",
                    (_rate("headrace_broker_batches_repeated_total", "namespace, topic", _OF_TOPIC), _TOPIC),
                    unit="cps",
                    about="By idempotent producers that had no answer; each is in the log once.",
                ),
                graph(
                    "Records in a batch",
                    (
                        f"{_rate('headrace_broker_records_in_total', 'namespace, topic', _OF_TOPIC)}"
                        f" / {_rate('headrace_broker_batches_in_total', 'namespace, topic', _OF_TOPIC)}",
                        _TOPIC,
                    ),
                    about="On average. Many small ones cost more than few large ones.",
                ),
            ),
        ),
        Row(
            "Hottest partitions",
            (
                graph(
                    "Bytes in",
                    (
                        f"topk(10, {_rate('headrace_broker_bytes_in_total', _BY_PARTITION, _OF_TOPIC)})",
                        f"{_TOPIC}/{{{{partition}}}}",
                    ),
                    unit="Bps",
                ),
                graph(
                    "Bytes out",
                    (
                        f"topk(10, {_rate('headrace_broker_bytes_out_total', _BY_PARTITION, _OF_TOPIC)})",
                        f"{_TOPIC}/{{{{partition}}}}",
                    ),
                    unit="Bps",
                ),
            ),
        ),
        Row(
            "What is kept",
            (
                graph(
                    "Bytes on all disks",
                    (f"sum by (namespace, topic) (headrace_broker_log_bytes{{{_OF_TOPIC}}})", _TOPIC),
                    unit="bytes",
                    about="All replicas.",
                ),
                graph(
                    "Offsets that are kept",
                    (
                        f"sum by (namespace, topic) ((headrace_broker_high_watermark{{{_OF_TOPIC}}}"
                        f" - headrace_broker_log_start_offset{{{_OF_TOPIC}}})"
                        " and on (job, instance, namespace, topic, partition) headrace_broker_leads == 1)",
                        _TOPIC,
                    ),
                    about="Of leaders. A compacted topic has fewer records than offsets.",
                ),
                graph(
                    "Deleted by retention",
                    (_rate("headrace_broker_deleted_bytes_total", "instance, reason"), "{{instance}} {{reason}}"),
                    unit="Bps",
                    about="Of all topics.",
                ),
                graph(
                    "Compaction",
                    (_rate("headrace_broker_compaction_bytes_read_total", "instance"), "{{instance}} read"),
                    (_rate("headrace_broker_compaction_bytes_written_total", "instance"), "{{instance}} written"),
                    unit="Bps",
                    about="Of all topics.",
                ),
            ),
        ),
        Row(
            "Replicas",
            (
                graph(
                    "Missing from the in-sync replicas",
                    (
                        f"sum by (namespace, topic) (headrace_broker_replicas{{{_OF_TOPIC}}}"
                        f" - headrace_broker_in_sync_replicas{{{_OF_TOPIC}}})",
                        _TOPIC,
                    ),
                ),
                graph(
                    "Furthest behind",
                    (
                        f"max by (namespace, topic) (headrace_broker_replica_lag_records{{{_OF_TOPIC}}})"
                        " or on () vector(0)",
                        _TOPIC,
                    ),
                    about="Records that the slowest follower of a partition lacks.",
                ),
            ),
        ),
    ),
)

GROUPS = Dashboard(
    name="groups",
    title="Headrace / Consumer groups",
    about="How far readers are behind, and whether they are steady.",
    variables=(
        _JOB,
        Variable("namespace", "label_values(headrace_group_state, namespace)"),
        Variable("group", 'label_values(headrace_group_state{namespace=~"$namespace"}, group)'),
    ),
    rows=(
        Row(
            "All groups",
            (
                stat("Groups", 'sum(headrace_groups{job=~"$job"})'),
                stat("Members", f"sum({_once('headrace_group_members', _OF_GROUP)})"),
                stat("Records behind", f"sum({_once('headrace_group_lag', _OF_GROUP, _LAGS)})"),
                stat(
                    "Partitions of unknown lag",
                    f"count({_once('headrace_group_lag_known', _OF_GROUP, _LAGS)} == 0) or vector(0)",
                    bad_from=1,
                    about="Their leaders do not tell.",
                ),
            ),
        ),
        Row(
            "How far behind",
            (
                graph(
                    "By group",
                    (f"sum by (namespace, group) ({_once('headrace_group_lag', _OF_GROUP, _LAGS)})", _GROUP),
                ),
                graph(
                    "Partitions that are furthest behind",
                    (
                        f"topk(10, max by (namespace, group, topic, partition) (headrace_group_lag{{{_OF_GROUP}}}))",
                        f"{_GROUP}: {{{{topic}}}}/{{{{partition}}}}",
                    ),
                ),
            ),
        ),
        Row(
            "Members",
            (
                graph("Members", (_once("headrace_group_members", _OF_GROUP), _GROUP)),
                graph(
                    "State",
                    (
                        _STATES,
                        "{{state}}",
                    ),
                    about="Groups by state.",
                ),
                graph(
                    "Assigned anew",
                    (_rate("headrace_group_rebalances_total", "namespace, group", _OF_GROUP), _GROUP),
                    unit="cps",
                ),
                graph(
                    "Commits",
                    (_rate("headrace_group_commits_total", "namespace, group", _OF_GROUP), _GROUP),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Coordinators",
            (
                graph("Groups by broker", ('sum by (instance) (headrace_groups{job=~"$job"})', "{{instance}}")),
                graph(
                    "Without a coordinator after an election",
                    (_quantile("0.99", "headrace_coordinator_loading_seconds", "instance"), "{{instance}}"),
                    unit="s",
                    about="99th percentile.",
                ),
            ),
        ),
    ),
)

_QUERY = "unless on (job, namespace, group) headrace_group_members"
SPARK = Dashboard(
    name="spark",
    title="Headrace / Spark",
    about="How far Spark's streaming queries are behind, and the staged commits of those that write exactly once.",
    variables=(_JOB, _NAMESPACE),
    rows=(
        Row(
            "Queries that read",
            (
                graph(
                    "Records behind",
                    (
                        "sum by (namespace, group) (max by (job, namespace, group, topic, partition)"
                        f' (headrace_group_lag{{job=~"$job", namespace=~"$namespace"}}) {_QUERY})',
                        _GROUP,
                    ),
                    about="Of each query that has the option `group`.",
                ),
                graph(
                    "Reports",
                    (
                        "sum by (namespace, group) (rate(headrace_group_commits_total"
                        f'{{job=~"$job", namespace=~"$namespace"}}[$__rate_interval]) {_QUERY})',
                        _GROUP,
                    ),
                    unit="cps",
                    about="One for each trigger, and one a minute at least.",
                ),
            ),
        ),
        Row(
            "Queries that write exactly once",
            (
                stat("Writers", 'sum(headrace_broker_writers{job=~"$job"})'),
                stat(
                    "Batches on their way",
                    'sum(headrace_broker_writer_batches_rolling{job=~"$job"})',
                    about="Committed, and not in all of their partitions yet.",
                ),
                graph(
                    "Records carried into their partitions",
                    (_rate("headrace_broker_writer_records_committed_total", "instance"), "{{instance}}"),
                    unit="cps",
                ),
                graph(
                    "From the decision until all is visible",
                    (_quantile("0.5", "headrace_broker_writer_roll_seconds", "job"), "median"),
                    (_quantile("0.99", "headrace_broker_writer_roll_seconds", "job"), "99th percentile"),
                    unit="s",
                ),
                graph(
                    "Staged",
                    (
                        _rate("headrace_broker_bytes_in_total", "topic", 'job=~"$job", topic="headrace-staging"'),
                        "bytes",
                    ),
                    unit="Bps",
                ),
                graph(
                    "Kept for stages",
                    ('sum by (topic) (headrace_broker_log_bytes{job=~"$job", topic="headrace-staging"})', "{{topic}}"),
                    unit="bytes",
                    about="All replicas. Stages expire.",
                ),
            ),
        ),
    ),
)

DASHBOARDS = (CLUSTER, TOPICS, GROUPS, SPARK)
