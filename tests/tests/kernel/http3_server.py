"""A server of HTTP/3: http3_server.py CERTIFICATE KEY. Prints its port.

Answers "Hello, world!" with 200, /missing with 404, and the body of a request with as many octets; /interim hints first (103), and /stop
answers 413 before the body is there, and wants no more of it; /close ends its connection instead, /reset its stream, and /silent says nothing.
"""

import asyncio, sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, ErrorCode, FrameType, H3Connection, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated


class Server(QuicConnectionProtocol):
    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http, self.paths, self.bodies = H3Connection(self._quic), {}, {}
        if self.http is None:
            return
        for happened in self.http.handle_event(event):
            stream = happened.stream_id
            if isinstance(happened, HeadersReceived):
                self.paths[stream] = dict(happened.headers)[b":path"]
            if isinstance(happened, DataReceived):
                self.bodies[stream] = self.bodies.get(stream, 0) + len(happened.data)
                if self.paths[stream] == b"/stop" and self.bodies[stream] == len(happened.data):
                    self.say(stream, b"413", b"enough")
                    self._quic.stop_stream(stream, ErrorCode.H3_NO_ERROR)
            if happened.stream_ended:
                self.answer(stream, self.paths[stream], self.bodies.get(stream, 0))
        self.transmit()

    def answer(self, stream, path, length):
        if path == b"/close":
            self._quic.close(error_code=ErrorCode.H3_NO_ERROR)
        elif path == b"/reset":
            self._quic.reset_stream(stream, ErrorCode.H3_INTERNAL_ERROR)
        elif path not in (b"/silent", b"/stop"):
            if path == b"/interim":
                hint = self.http._encode_headers(stream, [(b":status", b"103"), (b"link", b"</style.css>; rel=preload")])
                self._quic.send_stream_data(stream, encode_frame(FrameType.HEADERS, hint))
            self.say(stream, b"404" if path == b"/missing" else b"200", b"x" * length or b"Hello, world!\n")

    def say(self, stream, status, body):
        self.http.send_headers(stream, [(b":status", status)])
        self.http.send_data(stream, body, end_stream=True)


async def main():
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(sys.argv[1], sys.argv[2])
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Server)
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
