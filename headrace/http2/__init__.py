"""HTTP/2: a protocol engine without I/O, its bridge to aiohttp, and the client transports."""
