"""Sends back what comes, over TCP and UDP. Usage: echo.py PORT [uvloop]"""

import asyncio
import signal
import sys


class Stream(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        self.transport.sendto(data, peer)


async def main(port):
    loop = asyncio.get_running_loop()
    stopping = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, stopping.set_result, None)
    server = await loop.create_server(Stream, "0.0.0.0", port, backlog=512)
    datagrams, _ = await loop.create_datagram_endpoint(Datagrams, local_addr=("0.0.0.0", port))
    print("ready: ", type(loop).__module__, flush=True)
    await stopping
    server.close()
    datagrams.close()


if "uvloop" in sys.argv:
    import uvloop

    uvloop.install()
asyncio.run(main(int(sys.argv[1])))
