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
GROUP, MEMBER = f"/groups/{group}", f"/groups/{group}/members/{me}"
atexit.register(lambda: call("DELETE", MEMBER))
signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def call(method, path, body=None):
    """Status and answer of any broker: it passes on what another one is to decide. Tried again while that may help."""
    while True:
        url, data = f"{servers[0]}/v1/namespaces/default{path}", json.dumps(body).encode() if body else None
        try:
            with request.urlopen(request.Request(url, data, method=method), timeout=10) as answer:
                return answer.status, json.load(answer)
        except error.HTTPError as refusal:
            problem = json.load(refusal)
            if not problem["retriable"]:
                return refusal.code, problem
        except OSError:
            servers.append(servers.pop(0))
        time.sleep(0.2)


def consume(uid, partition, offset, epoch):
    """Write out what follows, and only then commit. Where to go on; None: somebody else reads the partition now."""
    path = f"/topics/{topic}/partitions/{partition}/records?maxRecords=1000&topicUid={uid}&offset={offset}"
    status, read = call("GET", path)
    if status != 200 or not read["records"]:
        return max(offset, read.get("logStartOffset", 0))
    sys.stdout.writelines(f"{partition} {record['offset']} {record['value']}\n" for record in read["records"])
    sys.stdout.flush()
    done = {"topicUid": uid, "partition": partition, "offset": read["nextOffset"]}
    body = {"memberId": me, "memberEpoch": epoch, "offsets": [done]}
    return read["nextOffset"] if call("POST", f"{GROUP}/offsets", body)[0] == 200 else None


seen, positions = None, {}  # (epoch, revision) of the last answer; where we are in the partitions that we own
while True:
    owned = [{"topicUid": uid, "partitions": [partition]} for uid, partition in positions]
    beat = {"memberEpoch": seen[0], "revision": seen[1], "owned": owned, "waitMs": 300} if seen else None
    status, told = call("POST", f"{MEMBER}/heartbeat", beat) if beat else call("PUT", MEMBER, {"topics": [topic]})
    if status != 200:  # We were taken for dead, and all of it is somebody else's: begin anew.
        seen, positions = (None, {}) if beat else sys.exit(told["detail"])
    elif seen is None or (told["memberEpoch"], told["revision"]) > seen:
        seen = told["memberEpoch"], told["revision"]
        ours = [(each["topicUid"], number) for each in told["assignment"] or () for number in each["partitions"]]
        offsets = call("GET", f"{GROUP}/offsets")[1]["offsets"]
        committed = {(each["topicUid"], each["partition"]): each["offset"] for each in offsets}
        positions = {key: positions.get(key, committed.get(key, 0)) for key in ours}  # The rest is given up.
    positions = {key: at for key, offset in positions.items() if (at := consume(*key, offset, seen[0])) is not None}
