"""examples/balancer: paths, ports, times and options are those of the service. Nothing here needs a container."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
from unmask.cli import main
from unmask.serve.http import Settings
from unmask.serve.http.guard import OPEN

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "examples" / "balancer"
COMPOSE = yaml.safe_load((HERE / "compose.yaml").read_text(encoding="utf-8"))
HAPROXY = (HERE / "haproxy.cfg").read_text(encoding="utf-8")
SERVICES = {name: service for name, service in COMPOSE["services"].items() if name != "balancer"}


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit]


def option(service, name):
    command = list(map(str, service["command"]))
    return command[command.index(name) + 1]


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_the_command_of_a_service_is_understood(service, models, tmp_path, monkeypatch):
    """Run with a folder and keys of the test in place of those that are mounted."""
    workers = pytest.importorskip("unmask.serve.http.workers")
    model, keys = option(service, "--model"), option(service, "--api-key-file")
    assert model in [volume.split(":")[1] for volume in service["volumes"]]
    assert keys.removeprefix("/run/secrets/") in service["secrets"]
    assert set(service["secrets"]) <= COMPOSE["secrets"].keys()
    (tmp_path / "keys").write_text("secret")
    here = {model: str(models.classifier), keys: str(tmp_path / "keys")}
    ran = []
    monkeypatch.setattr(workers, "run", lambda app, host, port, begun, **how: ran.append((app, host, port, how)))
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    main([here.get(word, word) for word in map(str, service["command"])])
    [(app, host, port, how)] = ran
    assert (host, how["workers"]) == ("0.0.0.0", 2)
    settings = app.state.service.settings
    assert settings.notice_seconds > 0
    assert seconds(service["stop_grace_period"]) > settings.notice_seconds + settings.drain_seconds + workers.CLOSING
    assert f"127.0.0.1:{port}/ready" in service["healthcheck"]["test"][-1]
    assert service["healthcheck"]["test"][:2] == ["CMD", "python"]
    compile(service["healthcheck"]["test"][-1], "check", "exec")


def test_the_image_is_built_here():
    for service in SERVICES.values():
        build = service["build"]
        assert (HERE / build["context"]).resolve() == ROOT
        assert 'ENTRYPOINT ["unmask"]' in (ROOT / build["dockerfile"]).read_text(encoding="utf-8")
    for volume in COMPOSE["services"]["balancer"]["volumes"]:
        assert (HERE / volume.split(":")[0]).is_file()


def test_the_balancer_asks_the_services():
    servers = re.findall(r"^ +server (\S+) (\S+):(\d+)", HAPROXY, re.M)
    assert servers == [(name, name, option(service, "--port")) for name, service in SERVICES.items()]
    assert re.search(r"http-check send .*uri (\S+)", HAPROXY)[1] == "/ready"
    assert "/ready" in OPEN
    balancer = COMPOSE["services"]["balancer"]
    [published] = balancer["ports"]
    assert re.search(r"^ +bind :(\d+)", HAPROXY, re.M)[1] == published.rpartition(":")[2]
    assert balancer["depends_on"].keys() == SERVICES.keys()
    every = seconds(re.search(r"check inter (\S+)", HAPROXY)[1])
    assert all(float(option(service, "--notice-seconds")) > 2 * every for service in SERVICES.values())
    assert seconds(re.search(r"timeout server +(\S+)", HAPROXY)[1]) > Settings().seconds
    image = re.search(r"haproxy:([\d.]+)", balancer["image"])[1]
    assert f"HAProxy {image}" in (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_haproxy_reads_the_file():
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("haproxy is not installed")
    done = subprocess.run([program, "-c", "-f", str(HERE / "haproxy.cfg")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
