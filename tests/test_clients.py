#!/usr/bin/env python3
"""test_clients.py BUILD [CLIENT ...]: the official clients of OpenAI, Anthropic and Ollama against one server, and
the fields of their requests beside the table that test_server_fields.py checks.

They come from npm (clients/package.json pins them) into BUILD/clients. Where npm or its registry cannot be reached the tests
are skipped, and say so. Speaks TAP.
"""
import os
import re
import shutil
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(here, "support"))
import npm_packages
build = os.path.abspath(sys.argv[1])
clients = sys.argv[2:] or ["openai", "anthropic", "ollama", "fields", "pictures"]


def main():
    reason = npm_packages.install(here, build, "clients")
    if reason:
        print("1..1\nok 1 - clients # SKIP %s" % reason)
        return 0
    sys.argv = [sys.argv[0], build]
    import test_server_api as api

    api.make_models()
    models = {name: [] for name in clients}
    if "pictures" in models:
        models["pictures"] = ["tests/data/pictures/%s.gguf" % name for name in ("qwen3vlmoe", "qwen35moe", "gemma4")] + [api.path("pebble.gguf")]
    lines, failed, count, server = [], False, 0, None
    try:
        for i, name in enumerate(clients):
            if not server or models[name] != models[clients[i - 1]]:
                if server:
                    server.stop()
                server = api.Server(*models[name])
            environment = {**os.environ, "MO_SERVER": "http://127.0.0.1:%d" % server.port, "MO_DATA": os.path.join(here, "data"), "MO_FIELDS": os.path.join(here, "data", "server", "fields.json"), "NO_PROXY": "127.0.0.1"}
            done = subprocess.run(["node", name + ".js"], cwd=os.path.join(build, "clients"), env=environment, capture_output=True, text=True,
                                  timeout=300 * api.SLOW)
            failed = failed or done.returncode != 0
            found = re.findall(r"^(not ok|ok) \d+ - (.*)$|^(#.*)$", done.stdout, re.M)
            if not any(word for word, _, _ in found):
                lines.append("not ok %d - %s: %s" % (count + 1, name, done.stderr[-500:].replace("\n", " ")))
                count += 1
                continue
            for word, title, comment in found:
                count += bool(word)
                lines.append("%s %d - %s: %s" % (word, count, name, title) if word else comment)
        server.stop()
    finally:
        if server and server.process.poll() is None:
            server.process.kill()
        shutil.rmtree(api.FOLDER, ignore_errors=True)
    print("1..%d" % count)
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
