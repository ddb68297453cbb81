"""Forks processes in which PyTorch is imported, but not dorajit, because importing PyTorch takes longer than most test
programs run.

A forked process gets the environment of its program before it imports dorajit, which reads it then. PyTorch has read
its variables before the fork: a program that changes other variables than dorajit's needs a new interpreter.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading

_SECONDS = 120
# Prefixes of variables that importing PyTorch does not read.
_OWN = ("DORAJIT_", "PEFT_DORA_", "PYTEST_", "TORCHINDUCTOR_CACHE_DIR")
_server = None


def serves(variables):
    """Whether a program with this environment can run in a forked process."""
    of_torch = _server.variables if _server else os.environ
    return all(of_torch.get(name) == variables.get(name) or name.startswith(_OWN) for name in {*of_torch, *variables})


def run(program, variables, options):
    """Like subprocess.run of a Python interpreter with `options` that executes the program; output is text."""
    global _server
    if _server is None:
        _server = _Server(options)
        atexit.register(_server.end)
    return _server.run(program, variables)


class _Server:
    def __init__(self, options):
        self.variables = dict(os.environ)
        self._connection, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, *options, __file__, str(there.fileno())], pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def end(self):
        self._connection.close()
        self._process.wait()

    def run(self, program, variables):
        (out, out_there), (err, err_there) = os.pipe(), os.pipe()
        request = json.dumps({"program": program, "variables": variables}).encode()
        socket.send_fds(self._connection, [len(request).to_bytes(8, "little")], [out_there, err_there])
        self._connection.sendall(request)
        os.close(out_there)
        os.close(err_there)
        child = int.from_bytes(_read(self._connection, 8), "little")
        expired = threading.Timer(_SECONDS, os.kill, (child, 9))
        expired.start()
        texts = {}
        def read(pipe):
            with open(pipe, encoding="utf-8", errors="surrogateescape") as file:
                texts[pipe] = file.read()
        other = threading.Thread(target=read, args=(err,))
        other.start()
        read(out)
        other.join()
        status = int.from_bytes(_read(self._connection, 8), "little", signed=True)
        expired.cancel()
        return subprocess.CompletedProcess([sys.executable], status, texts[out], texts[err])


def _read(connection, size):
    found = connection.recv(size, socket.MSG_WAITALL)
    if len(found) != size:
        raise EOFError
    return found


def _serve(connection):
    """Returns a program in each process that is forked for one, and does not return in the server."""
    while True:
        length, pipes, _, _ = socket.recv_fds(connection, 8, 2)
        if not length:
            os._exit(0)
        request = json.loads(_read(connection, int.from_bytes(length, "little")))
        child = os.fork()
        if child == 0:
            connection.close()
            for pipe, standard in zip(pipes, (1, 2)):
                os.dup2(pipe, standard)
                os.close(pipe)
            os.environ.clear()
            os.environ.update(request["variables"])
            return request["program"]
        for pipe in pipes:
            os.close(pipe)
        connection.sendall(child.to_bytes(8, "little"))
        _, status = os.waitpid(child, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "little", signed=True))


def _execute(program):
    """In the place of this module."""
    sys.argv = ["-c"]
    sys.path[0] = ""
    names = globals()
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    exec(compile(program, "<string>", "exec"), names)


if __name__ == "__main__":
    import torch

    _execute(_serve(socket.socket(fileno=int(sys.argv[1]))))
