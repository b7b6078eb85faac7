"""A member of a consumer group with nothing but HTTP; docs/protocol.md, "Consumer groups", says why each step is."""
# python examples/group_member.py http://127.0.0.1:9701,http://127.0.0.1:9702 flights billing

import atexit
import json
import signal
import sys
import time
import uuid
from urllib import error, request

servers, topic, group, me = sys.argv[1].split(","), sys.argv[2], sys.argv[3], str(uuid.uuid4())
OFFSETS, MEMBER, READ = f"/groups/{group}/offsets", f"/groups/{group}/members/{me}", f"/topics/{topic}/partitions"
atexit.register(lambda: call("DELETE", MEMBER, time.monotonic() + 3))
signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def call(method, path, until, body=None):
    """Status and answer of any broker, which passes it on. Tried again while that may help; 0 where time is up."""
    while (left := min(until - time.monotonic(), 10)) > 0:
        url, data = f"{servers[0]}/v1/namespaces/default{path}", json.dumps(body).encode() if body else None
        try:
            with request.urlopen(request.Request(url, data, method=method), timeout=left) as answer:
                return answer.status, json.load(answer)
        except error.HTTPError as refusal:
            if not (problem := json.load(refusal))["retriable"]:
                return refusal.code, problem
        except OSError:
            servers.append(servers.pop(0))
        time.sleep(0.2)
    return 0, {}


seen, positions, ours_until = None, {}, 0  # The last answer's (epoch, revision); where we are; when the session ends.
while True:
    if (sent := time.monotonic()) > ours_until:
        seen, positions = None, {}  # Taken for dead, or nobody answered: others may read all of it. Begin anew.
    beat = {"memberEpoch": seen[0], "revision": seen[1], "waitMs": 300} if seen else {"topics": [topic]}
    beat["owned"] = [{"topicUid": uid, "partitions": [partition]} for uid, partition in positions]
    said = ("POST", f"{MEMBER}/heartbeat", ours_until) if seen else ("PUT", MEMBER, sent + 10)
    status, told = call(*said, beat)
    if status:
        ours_until = sent + told["sessionMs"] / 1000 if status == 200 else 0 if seen else sys.exit(told["detail"])
    if status == 200 and (seen is None or (told["memberEpoch"], told["revision"]) > seen):
        status, known = call("GET", OFFSETS, ours_until)
        if status == 200:  # Else it is told again with the next heartbeat.
            seen = told["memberEpoch"], told["revision"]
            ours = [(each["topicUid"], number) for each in told["assignment"] or () for number in each["partitions"]]
            committed = {(each["topicUid"], each["partition"]): each["offset"] for each in known["offsets"]}
            positions = {key: positions.get(key, committed.get(key, 0)) for key in ours}  # The rest is given up.
    for (uid, partition), offset in [*positions.items()]:
        status, read = call("GET", f"{READ}/{partition}/records?topicUid={uid}&offset={offset}", ours_until)
        if status == 416 and read.get("logStartOffset", 0) <= offset:
            sys.exit(f"partition {partition}: {read['detail']}")
        positions[uid, partition] = read.get("nextOffset", max(offset, read.get("logStartOffset", 0)))
        if status == 200 and read["records"] and time.monotonic() < ours_until:  # Write out, and only then commit.
            print(*(f"{partition} {each['offset']} {each['value']}" for each in read["records"]), sep="\n", flush=True)  # noqa: T201
            done = {"topicUid": uid, "partition": partition, "offset": read["nextOffset"]}
            if call("POST", OFFSETS, ours_until, {"memberId": me, "memberEpoch": seen[0], "offsets": [done]})[0] != 200:
                del positions[uid, partition]  # Somebody else reads it now.
