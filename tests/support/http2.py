"""Two engines joined in memory: what one wants to send, the other receives, until both are silent."""

from headrace.http2.engine import Engine, Role
from headrace.http2.events import Event, Fields

GET: Fields = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"broker:1"), (b":path", b"/")]
POST: Fields = [(b":method", b"POST"), *GET[1:]]
OK: Fields = [(b":status", b"200")]


def output(engine: Engine) -> bytes:
    """What the engine has to say, in one piece."""
    return b"".join(engine.data_to_send())


class Link:
    def __init__(self) -> None:
        self.client, self.server = Engine(Role.CLIENT), Engine(Role.SERVER)
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self.run()
        self.client_events.clear()
        self.server_events.clear()

    def run(self) -> None:
        """Deliver in both directions until nobody has anything to say."""
        while True:
            to_server, to_client = output(self.client), output(self.server)
            if not to_server and not to_client:
                return
            self.server_events += self.server.receive_data(to_server)
            self.client_events += self.client.receive_data(to_client)

    def request(self, fields: Fields = GET, *, ended: bool = True) -> int:
        stream_id = self.client.open_stream(fields, ended=ended)
        self.run()
        return stream_id


FRAME = bytes(1 << 20)
"""Every window is full of a whole number of them."""
