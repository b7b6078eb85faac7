"""For all tests: hypothesis without a clock, since a busy machine is no failure, and Ctrl-C that is heard.

A shell starts what it runs in the background deaf to SIGINT, and that is inherited by all that is started from there.
"""

import signal

from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
