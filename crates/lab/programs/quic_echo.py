"""QUIC by aioquic: a server that sends each stream back, and a client that counts.

Usage: quic_echo.py server ADDRESS PORT CERTIFICATE KEY
       quic_echo.py client ADDRESS PORT SECONDS
"""

import asyncio
import signal
import ssl
import sys
import time

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration


def configuration(is_client):
    return QuicConfiguration(alpn_protocols=["echo"], is_client=is_client, verify_mode=ssl.CERT_NONE)


async def answer(reader, writer):
    writer.write(await reader.read())
    writer.write_eof()


def on_stream(reader, writer):
    asyncio.ensure_future(answer(reader, writer))


async def server(address, port, certificate, key):
    loop = asyncio.get_running_loop()
    stopping = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, stopping.set_result, None)
    settings = configuration(False)
    settings.load_cert_chain(certificate, key)
    serving = await serve(address, int(port), configuration=settings, stream_handler=on_stream)
    print("ready", flush=True)
    await stopping
    serving.close()


async def ask(connection, question):
    reader, writer = await connection.create_stream()
    writer.write(question)
    writer.write_eof()
    return await asyncio.wait_for(reader.read(), 10)


async def client(address, port, seconds):
    """A large stream, then small ones until the time is over, each on one connection, and a few new connections."""
    done = wrong = 0
    large = bytes(range(256)) * 2000
    for _ in range(3):
        async with connect(address, int(port), configuration=configuration(True)) as connection:
            wrong += await ask(connection, large) != large
            done += 1
    async with connect(address, int(port), configuration=configuration(True)) as connection:
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            questions = [b"question %d" % number for number in range(done, done + 8)]
            answers = await asyncio.gather(*(ask(connection, question) for question in questions))
            wrong += sum(answer != question for answer, question in zip(answers, questions))
            done += len(questions)
    print(f"done {done} wrong {wrong}", flush=True)


asyncio.run({"server": server, "client": client}[sys.argv[1]](*sys.argv[2:]))
