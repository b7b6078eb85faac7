"""The words that tests of real processes share: media types, paths of the Kubernetes API, and the command.

A `*_BODY` are the headers of a request whose body has that media type. `tests/support/cluster.py` has the processes.
"""

import sys
from pathlib import Path

BATCH = "application/vnd.headrace.batch"
NDJSON = "application/x-ndjson"
BATCH_BODY = {"Content-Type": BATCH}
NDJSON_BODY = {"Content-Type": NDJSON}
JSON_BODY = {"Content-Type": "application/json"}

_HEADRACE_API = "/apis/headrace.io/v1alpha1/namespaces/default"
TOPICS = f"{_HEADRACE_API}/topics"
PARTITION_SETS = f"{_HEADRACE_API}/partitionsets"
CONSUMER_GROUPS = f"{_HEADRACE_API}/consumergroups"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

HEADRACE = str(Path(sys.executable).with_name("headrace"))
"""The command, beside the interpreter that runs the tests."""
