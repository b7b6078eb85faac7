#!/usr/bin/env bash
# Writes records with curl and reads them back, over HTTP/2 without TLS. Needs curl 7.82 or later and gzip.
#
#   records.sh [URL [TOPIC]]                                         default: http://127.0.0.1:9701 flights
set -euo pipefail
records=${1:-http://127.0.0.1:9701}/v1/namespaces/default/topics/${2:-flights}

# -f fails on an error but prints the problem document, whose `detail` says what to do; --retry waits as Retry-After
# says (429, 503). A repeated write may write twice.
broker() {
  curl --http2-prior-knowledge --silent --show-error --fail-with-body --retry 5 "$@"
}

echo "one JSON document; the broker chooses the partition by the key:"
broker "$records/records" --json '{"records": [
  {"key": "N14228", "value": {"carrier": "UA", "flight": 1545}, "headers": {"source": "curl"}},
  {"key": "N24211", "value": {"carrier": "UA", "flight": 1714}}]}'

echo "a record a line, compressed, to partition 0:"
printf '{"value": "%s"}\n' "one" "two" "three" | gzip |
  broker "$records/partitions/0/records" --data-binary @- \
    --header "Content-Type: application/x-ndjson" --header "Content-Encoding: gzip"

echo "the first three records of partition 0:"
broker "$records/partitions/0/records?maxRecords=3&valueFormat=json" --compressed

# A watch goes on with what is written from now on; maxRecords ends this one. Empty lines say that all is well.
echo "a watch of partition 0:"
broker "$records/partitions/0/records?watch=true&maxRecords=3" --no-buffer --header "Accept: application/x-ndjson"

broker "$records" --output /dev/null --write-out 'protocol: HTTP/%{http_version}\n'
