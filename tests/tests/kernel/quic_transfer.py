"""Asks for a zone over QUIC (RFC 9250): quic_transfer.py PORT ZONE [ADDRESS]. Prints the number of messages, of SOA records, and of all records.

With an address, the client shakes hands from 127.0.0.1, and sends all that follows from that address.
"""

import asyncio, socket, ssl, struct, sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.quic.configuration import QuicConfiguration

port, zone = int(sys.argv[1]), sys.argv[2]
SOA, AXFR, IN = 6, 252, 1


def skip_name(octets, at):
    while octets[at] and octets[at] < 0xC0:
        at += octets[at] + 1
    return at + (2 if octets[at] else 1)


def types_in(message):
    questions, answers = struct.unpack("!HH", message[4:8])
    at = 12
    for _ in range(questions):
        at = skip_name(message, at) + 4
    for _ in range(answers):
        at = skip_name(message, at)
        rtype, _, _, length = struct.unpack("!HHIH", message[at:at + 10])
        at += 10 + length
        yield rtype


async def move_to(client, address):
    """Has the client send from another address, as one does that migrates (RFC 9000, 9)."""
    socket_there = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    socket_there.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    socket_there.bind((f"::ffff:{address}", 0))
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, sock=socket_there)


async def main():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["doq"], verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        if len(sys.argv) > 3:
            await client.ping()  # The handshake is over on both sides.
            await move_to(client, sys.argv[3])
        reader, writer = await client.create_stream()
        name = b"".join(bytes([len(label)]) + label.encode() for label in zone.split(".")) + b"\0"
        question = struct.pack("!6H", 0, 0, 1, 0, 0, 0) + name + struct.pack("!HH", AXFR, IN)
        writer.write(struct.pack("!H", len(question)) + question)
        writer.write_eof()
        octets = await asyncio.wait_for(reader.read(), 60)
    messages, types = 0, []
    while octets:
        (length,) = struct.unpack("!H", octets[:2])
        types += types_in(octets[2:2 + length])
        octets, messages = octets[2 + length:], messages + 1
    print(messages, types.count(SOA), len(types))


asyncio.run(main())
