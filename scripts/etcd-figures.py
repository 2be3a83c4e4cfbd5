#!/usr/bin/env python3
"""Measures zones from etcd: how long after a put servers answer it, and how fast many zones and a large zone come.

    scripts/etcd-figures.py SIDESTEP            the binary; needs etcd (etcd-server), and no root

Runs an etcd and two servers on loopback, with files in a directory that goes at the end.
"""

import base64
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

PUTS = 200
ZONES = 10_000
RECORDS = 100_000
OPERATIONS_MAX = 128  # Of a transaction, by etcd.


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Etcd:
    """One member, asked by its JSON gateway."""

    def __init__(self, directory):
        self.url = f"http://127.0.0.1:{free_port()}"
        peer = f"http://127.0.0.1:{free_port()}"
        self.command = (["etcd", "--data-dir", f"{directory}/etcd", "--log-level", "error"]
                        + ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
                        + ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
                        + ["--initial-cluster", f"default={peer}", "--quota-backend-bytes", str(4 << 30)])
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self):
        for _ in range(600):
            try:
                return self.call("kv/range", {"key": text("x")})
            except OSError:
                time.sleep(0.1)
        sys.exit("etcd does not answer")

    def call(self, path, message):
        request = urllib.request.Request(f"{self.url}/v3/{path}", json.dumps(message).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def put(self, key, value):
        self.call("kv/put", {"key": text(f"/sidestep/dns/{key}"), "value": text(value)})

    def put_all(self, pairs):
        for first in range(0, len(pairs), OPERATIONS_MAX):
            puts = [{"requestPut": {"key": text(f"/sidestep/dns/{key}"), "value": text(value)}}
                    for key, value in pairs[first:first + OPERATIONS_MAX]]
            self.call("kv/txn", {"success": puts})


def text(of):
    return base64.b64encode(of.encode()).decode()


class Server:
    """A server of zones from etcd."""

    def __init__(self, binary, etcd, directory, name):
        self.directory = f"{directory}/{name}"
        os.makedirs(f"{self.directory}/kept", exist_ok=True)
        self.port = free_port()
        with open(f"{self.directory}/dns.toml", "w") as file:
            file.write(f'listen = ["127.0.0.1:{self.port}"]\ncores = "0"\ncontrol = "{self.directory}/control.sock"\n'
                       f'user = "root"\n[etcd]\nendpoints = ["{etcd.url}"]\ndirectory = "kept"\n')
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", self.port))
        self.socket.settimeout(0.5)
        self.command = [binary, "dns", "serve", "--config", f"{self.directory}/dns.toml", "--log", "warn"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command)

    def ask(self, name):
        """The last address of the answer, or the code."""
        query = struct.pack("!HHHHHH", random.randrange(65536), 0, 1, 0, 0, 0)
        query += b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0\0\1\0\1"
        try:
            self.socket.send(query)
            answer = self.socket.recv(4096)
        except OSError:
            time.sleep(0.01)
            return "silence"
        count = struct.unpack("!H", answer[6:8])[0]
        return answer[-4:] if count and len(answer) > len(query) + 12 else f"code {answer[3] & 15}"

    def until(self, name, address):
        while self.ask(name) != bytes(address):
            pass

    def processor_time(self):
        """Milliseconds of all its threads."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


def latency(etcd, servers, name, key):
    """Milliseconds from a put to the answer of the last of the servers, many times."""
    times = []
    for number in range(PUTS):
        address = [10, number % 250 + 1, random.randrange(250), random.randrange(250)]
        begun = time.monotonic()
        etcd.put(key, "60 " + ".".join(map(str, address)))
        for server in servers:
            server.until(name, address)
        times.append(1000 * (time.monotonic() - begun))
    times.sort()
    return f"median {statistics.median(times):.1f} ms, 99 of 100 within {times[len(times) * 99 // 100 - 1]:.1f} ms, at most {times[-1]:.1f} ms"


def absence(etcd, servers, name, key):
    """What it takes to come back to an etcd that was away, and has the same."""
    before = [server.processor_time() for server in servers]
    etcd.process.kill()
    etcd.process.wait()
    etcd.start()
    etcd.wait()
    begun = time.monotonic()
    etcd.put(key, "60 10.0.0.1")
    for server in servers:
        while server.ask(name) != bytes([10, 0, 0, 1]):
            time.sleep(0.02)  # Answers are not what is measured.
    took = time.monotonic() - begun
    spent = [server.processor_time() - time for server, time in zip(servers, before)]
    return f"{took:.1f} s to an answer of both servers, " + ", ".join(f"{time} ms" for time in spent) + " of processor time"


def main():
    binary = os.path.abspath(sys.argv[1])
    directory = tempfile.mkdtemp(prefix="sidestep-etcd-")
    started = []
    try:
        etcd = Etcd(directory)
        started.append(etcd)
        etcd.wait()
        etcd.put("records/one.test./www/A", "60 192.0.2.1")
        etcd.put("zones/one.test.", "")
        servers = [Server(binary, etcd, directory, name) for name in ("first", "second")]
        started += servers
        for server in servers:
            server.until("www.one.test", [192, 0, 2, 1])
        put = [0.0] * PUTS
        for number in range(PUTS):
            begun = time.monotonic()
            etcd.call("kv/put", {"key": text("/elsewhere"), "value": text("x")})
            put[number] = 1000 * (time.monotonic() - begun)
        print(f"a put alone: median {statistics.median(put):.1f} ms")
        print("put to answer on both servers, one zone:", latency(etcd, servers, "www.one.test", "records/one.test./www/A"))

        begun = time.monotonic()
        etcd.put_all([(f"records/zone-{zone}.test./www/A", "60 192.0.2.1") for zone in range(ZONES)])
        print(f"{ZONES} zones' records written in {time.monotonic() - begun:.1f} s")
        begun = time.monotonic()
        etcd.put_all([(f"zones/zone-{zone}.test.", "") for zone in range(ZONES)])
        print(f"{ZONES} zones written in {time.monotonic() - begun:.1f} s")
        for server in servers:
            server.until(f"www.zone-{ZONES - 1}.test", [192, 0, 2, 1])
        print(f"the last of {ZONES} zones answered {time.monotonic() - begun:.1f} s after the first was written")
        print(f"put to answer beside {ZONES} zones:", latency(etcd, servers, "www.one.test", "records/one.test./www/A"))
        print("etcd is back:", absence(etcd, servers, "www.one.test", "records/one.test./www/A"))
        second = servers[1]
        second.process.kill()
        second.process.wait()
        shutil.rmtree(f"{second.directory}/kept")
        os.mkdir(f"{second.directory}/kept")
        begun = time.monotonic()
        second.start()
        second.until(f"www.zone-{ZONES - 1}.test", [192, 0, 2, 1])
        for zone in range(0, ZONES, 97):
            second.until(f"www.zone-{zone}.test", [192, 0, 2, 1])
        print(f"{ZONES} zones read by a server that starts in {time.monotonic() - begun:.1f} s, {second.memory()} MiB")

        begun = time.monotonic()
        last = [10, (RECORDS - 1) >> 16, (RECORDS - 1) >> 8 & 255, (RECORDS - 1) & 255]
        etcd.put_all([(f"records/large.test./h{host}/A", f"60 10.{host >> 16}.{host >> 8 & 255}.{host & 255}")
                      for host in range(RECORDS)])
        print(f"{RECORDS} records written in {time.monotonic() - begun:.1f} s")
        begun = time.monotonic()
        etcd.put("zones/large.test.", "")
        for server in servers:
            server.until(f"h{RECORDS - 1}.large.test", last)
        print(f"a zone of {RECORDS} records answered on both servers {time.monotonic() - begun:.1f} s after its key was put, {servers[0].memory()} MiB")
        print("put to answer in it:", latency(etcd, servers, "h7.large.test", "records/large.test./h7/A"))
    finally:
        for what in reversed(started):
            what.process.terminate()
            what.process.wait()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
