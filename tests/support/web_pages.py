"""What Chromium sends for web pages that are none of ours: the very headers.

A page of another site may send simple requests anywhere; so may one of another port of this machine; and the name of a
page may be made to lead here (DNS rebinding).
"""

import pytest

OTHER_SITE = {
    "Origin": "https://evil.example",
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "no-cors",
    "Sec-Fetch-Dest": "empty",
    "Referer": "https://evil.example/",
}
OTHER_PORT = OTHER_SITE | {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}
REBOUND = OTHER_SITE | {
    "Host": "rebound.evil.example:9700",
    "Origin": "http://rebound.evil.example:9700",
    "Sec-Fetch-Site": "same-origin",
}

PAGES = pytest.mark.parametrize("headers", [OTHER_SITE, OTHER_PORT, REBOUND], ids=["site", "port", "rebound"])
