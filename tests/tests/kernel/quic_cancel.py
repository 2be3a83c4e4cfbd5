"""Cancels a question over QUIC, then asks others by the same connection (RFC 9250, 4.3.1): quic_cancel.py PORT NAME. Prints their RCODEs."""

import asyncio, ssl, struct, sys

from aioquic.asyncio import connect
from aioquic.quic.configuration import QuicConfiguration

port, name = int(sys.argv[1]), sys.argv[2]
SOA, IN = 6, 1
REQUEST_CANCELLED = 3


def framed_question():
    owner = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    question = struct.pack("!6H", 0, 0, 1, 0, 0, 0) + owner + struct.pack("!HH", SOA, IN)
    return struct.pack("!H", len(question)) + question


async def ask(client):
    reader, writer = await client.create_stream()
    writer.write(framed_question())
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 60)
    return answer[5] & 15


async def main():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["doq"], verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        codes = [await ask(client)]
        _, writer = await client.create_stream()
        writer.write(framed_question()[:7])
        codes.append(await ask(client))  # The server has begun to read the other one.
        client._quic.reset_stream(writer.get_extra_info("stream_id"), REQUEST_CANCELLED)
        client.transmit()
        for _ in range(3):
            codes.append(await ask(client))
    print(*codes)


asyncio.run(main())
