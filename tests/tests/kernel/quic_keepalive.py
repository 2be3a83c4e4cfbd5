"""Asks over QUIC with the option edns-tcp-keepalive (RFC 9250, 4.3.3): quic_keepalive.py PORT NAME. Prints the error code that ends the connection."""

import asyncio, ssl, struct, sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated

port, name = int(sys.argv[1]), sys.argv[2]
SOA, IN, OPT, KEEPALIVE = 6, 1, 41, 11
ended = asyncio.Event()
codes = []


class Client(QuicConnectionProtocol):
    def quic_event_received(self, event):
        super().quic_event_received(event)
        if isinstance(event, ConnectionTerminated):
            codes.append(event.error_code)
            ended.set()


def framed_question():
    owner = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    option = struct.pack("!HH", KEEPALIVE, 0)
    opt = struct.pack("!BHHIH", 0, OPT, 1232, 0, len(option)) + option
    question = struct.pack("!6H", 0, 0, 1, 0, 0, 1) + owner + struct.pack("!HH", SOA, IN) + opt
    return struct.pack("!H", len(question)) + question


async def main():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["doq"], verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        _, writer = await client.create_stream()
        writer.write(framed_question())
        writer.write_eof()
        await asyncio.wait_for(ended.wait(), 20)
    print(*codes)


asyncio.run(main())
