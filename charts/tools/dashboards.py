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
    about="The state of the cluster, its traffic, and the load of each broker.",
    variables=(_JOB,),
    rows=(
        Row(
            "Health",
            (
                stat("Brokers ready", _operator("brokers", ', state="Ready"')),
                stat(
                    "Acting operators",
                    'sum by (cluster) (headrace_operator_acting{job=~"$job"})',
                    bad_from=2,
                    about="There should be one for each cluster.",
                ),
                stat(
                    "Offline partitions",
                    _operator("offline_partitions"),
                    bad_from=1,
                    about="Partitions without a leader.",
                ),
                stat(
                    "Partitions that refuse writes",
                    'sum(headrace_broker_under_min_isr_partitions{job=~"$job"})',
                    bad_from=1,
                    about="They have fewer replicas in sync than minInsyncReplicas and refuse acks=all.",
                ),
                stat(
                    "Under-replicated partitions",
                    'sum(headrace_broker_under_replicated_partitions{job=~"$job"})',
                    bad_from=1,
                    about="They have fewer replicas in sync than their topics ask for.",
                ),
                stat(
                    "Damaged partitions",
                    'sum(headrace_broker_damaged_partitions{job=~"$job"})',
                    bad_from=1,
                    about="A disk has lost or damaged records that were written to it.",
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
                    about="The error codes of brokers' answers, which docs/protocol.md explains.",
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
                    about="Requests that wait for as long as their clients ask for are in the next panel.",
                ),
                graph(
                    "Requests that wait, 99th percentile by route",
                    _request_time(', method=~"GET|WATCH", route=~".*/partitions/.*/records"', "{{method}} {{route}}"),
                    _request_time(', route=~"/v1/sessions|.*/commits"', "{{method}} {{route}}"),
                    unit="s",
                    logarithmic=True,
                    about="Fetches, streams, sessions and commits of writers take as long as their clients ask for.",
                ),
                graph(
                    "Sync of the disk",
                    (_quantile("0.5", "headrace_broker_fsync_seconds", "instance"), "{{instance}} median"),
                    (_quantile("0.99", "headrace_broker_fsync_seconds", "instance"), "{{instance}} 99th"),
                    unit="s",
                    about="Each acknowledged record waits for one sync.",
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
                    about="Records that the follower has not yet reported to have.",
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
                    (_rate("headrace_operator_unclean_leader_elections_total", "job"), "unclean elections among them"),
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
                    about="The bytes that the broker's files use; room is the bytes that may still be appended.",
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
    about="The traffic of each topic, its size on disk, and its busiest partitions.",
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
                    about="Idempotent producers repeat batches that got no answer; each is in the log once.",
                ),
                graph(
                    "Records in a batch",
                    (
                        f"{_rate('headrace_broker_records_in_total', 'namespace, topic', _OF_TOPIC)}"
                        f" / {_rate('headrace_broker_batches_in_total', 'namespace, topic', _OF_TOPIC)}",
                        _TOPIC,
                    ),
                    about="The average. Many small batches cost more than few large ones.",
                ),
            ),
        ),
        Row(
            "Busiest partitions",
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
            "Storage",
            (
                graph(
                    "Bytes on all disks",
                    (f"sum by (namespace, topic) (headrace_broker_log_bytes{{{_OF_TOPIC}}})", _TOPIC),
                    unit="bytes",
                    about="All replicas together.",
                ),
                graph(
                    "Offsets that are kept",
                    (
                        f"sum by (namespace, topic) ((headrace_broker_high_watermark{{{_OF_TOPIC}}}"
                        f" - headrace_broker_log_start_offset{{{_OF_TOPIC}}})"
                        " and on (job, instance, namespace, topic, partition) headrace_broker_leads == 1)",
                        _TOPIC,
                    ),
                    about="Counted at the leaders. A compacted topic has fewer records than offsets.",
                ),
                graph(
                    "Deleted by retention",
                    (_rate("headrace_broker_deleted_bytes_total", "instance, reason"), "{{instance}} {{reason}}"),
                    unit="Bps",
                    about="All topics together.",
                ),
                graph(
                    "Compaction",
                    (_rate("headrace_broker_compaction_bytes_read_total", "instance"), "{{instance}} read"),
                    (_rate("headrace_broker_compaction_bytes_written_total", "instance"), "{{instance}} written"),
                    unit="Bps",
                    about="All topics together.",
                ),
            ),
        ),
        Row(
            "Replicas",
            (
                graph(
                    "Replicas that are not in sync",
                    (
                        f"sum by (namespace, topic) (headrace_broker_replicas{{{_OF_TOPIC}}}"
                        f" - headrace_broker_in_sync_replicas{{{_OF_TOPIC}}})",
                        _TOPIC,
                    ),
                ),
                graph(
                    "Lag of the slowest follower",
                    (
                        f"max by (namespace, topic) (headrace_broker_replica_lag_records{{{_OF_TOPIC}}})"
                        " or on () vector(0)",
                        _TOPIC,
                    ),
                    about="Records that the slowest follower of any partition lacks.",
                ),
            ),
        ),
    ),
)

GROUPS = Dashboard(
    name="groups",
    title="Headrace / Consumer groups",
    about="The lag of each group, and its rebalances.",
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
                stat("Lag in records", f"sum({_once('headrace_group_lag', _OF_GROUP, _LAGS)})"),
                stat(
                    "Partitions with unknown lag",
                    f"count({_once('headrace_group_lag_known', _OF_GROUP, _LAGS)} == 0) or vector(0)",
                    bad_from=1,
                    about="Their leaders do not report a high watermark.",
                ),
            ),
        ),
        Row(
            "Lag",
            (
                graph(
                    "By group",
                    (f"sum by (namespace, group) ({_once('headrace_group_lag', _OF_GROUP, _LAGS)})", _GROUP),
                ),
                graph(
                    "Partitions with the largest lag",
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
                    about="The number of groups in each state.",
                ),
                graph(
                    "Rebalances",
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
                    about="The 99th percentile of the time.",
                ),
            ),
        ),
    ),
)

_QUERY = "unless on (job, namespace, group) headrace_group_members"
SPARK = Dashboard(
    name="spark",
    title="Headrace / Spark",
    about="The lag of Spark's streaming queries, and the staged commits of queries that write exactly once.",
    variables=(_JOB, _NAMESPACE),
    rows=(
        Row(
            "Queries that read",
            (
                graph(
                    "Lag in records",
                    (
                        "sum by (namespace, group) (max by (job, namespace, group, topic, partition)"
                        f' (headrace_group_lag{{job=~"$job", namespace=~"$namespace"}}) {_QUERY})',
                        _GROUP,
                    ),
                    about="The lag of each query that has the option `group`.",
                ),
                graph(
                    "Reports",
                    (
                        "sum by (namespace, group) (rate(headrace_group_commits_total"
                        f'{{job=~"$job", namespace=~"$namespace"}}[$__rate_interval]) {_QUERY})',
                        _GROUP,
                    ),
                    unit="cps",
                    about="A query reports its progress with each trigger, and once a minute at least.",
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
                    about="They are committed, and not in all of their partitions yet.",
                ),
                graph(
                    "Records written into their partitions",
                    (_rate("headrace_broker_writer_records_committed_total", "instance"), "{{instance}}"),
                    unit="cps",
                ),
                graph(
                    "Time from the commit until all records are visible",
                    (_quantile("0.5", "headrace_broker_writer_roll_seconds", "job"), "median"),
                    (_quantile("0.99", "headrace_broker_writer_roll_seconds", "job"), "99th percentile"),
                    unit="s",
                ),
                graph(
                    "Bytes staged",
                    (
                        _rate("headrace_broker_bytes_in_total", "topic", 'job=~"$job", topic="headrace-staging"'),
                        "bytes",
                    ),
                    unit="Bps",
                ),
                graph(
                    "Staged bytes on all disks",
                    ('sum by (topic) (headrace_broker_log_bytes{job=~"$job", topic="headrace-staging"})', "{{topic}}"),
                    unit="bytes",
                    about="All replicas together. Stages expire.",
                ),
            ),
        ),
    ),
)

DASHBOARDS = (CLUSTER, TOPICS, GROUPS, SPARK)
