"""Settings for the whole test process, made before Ray or torch is imported, and the one Ray cluster that tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT, SHARED

TESTS = ROOT / "tests"
IMPORTED = (*(path for path in TESTS.iterdir() if path.is_dir()), ROOT, os.environ.get("PYTHONPATH", ""))
"""Where workers find what they unpickle: functions of tests, and the product."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # containers set it, and then each of hundreds of processes compiles our packages again
sys.dont_write_bytecode = False
os.environ.update(
    PYTHONPATH=os.pathsep.join(map(str, IMPORTED)),
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    TORCHINDUCTOR_COMPILE_THREADS="1",  # else torch.compile starts processes that import torch, for blocks that take a second
    RAY_AUTH_MODE="disabled",
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2",
    RAY_worker_niceness="0",  # else 15: a test waits for workers that the other test process leaves nothing
    RAY_DEDUP_LOGS="0",  # else what workers wrote comes at the end, after the summary
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
)

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real images, ratings and votes, where this checkout has them beside it."""
    if not SHARED.is_dir():
        pytest.skip("real data is not there: expected at ../shared/data beside the checkout")
    return SHARED


@pytest.fixture(params=["memory", "s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of an empty place that is not on the disk: fsspec's memory, and a bucket of an S3 server on loopback."""
    import fsspec

    if request.param == "memory":
        yield "memory://bucket"
        fsspec.filesystem("memory").store.clear()
        return
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"ENDPOINT_URL": f"http://{host}:{port}", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}
    for name, value in given.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3 = fsspec.filesystem("s3")
    s3.mkdir("bucket")
    yield "s3://bucket"
    s3.rm("bucket", recursive=True)  # what servers of this process hold outlives them
    type(s3).clear_instance_cache()
    server.stop()


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has no credentials for s3://, whatever this one has."""
    import fsspec

    s3 = fsspec.get_filesystem_class("s3")
    s3.clear_instance_cache()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "SHARED_CREDENTIALS_FILE": os.devnull, "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    yield
    s3.clear_instance_cache()


@pytest.fixture(scope="session")
def cluster() -> Iterator[object]:
    """A local Ray cluster without dashboard, one for the test process."""
    from stages.engine.cluster import Cluster
    from stages.engine.config import RayConfig

    cluster = Cluster(RayConfig(num_cpus=4, object_store_mb=150, dashboard=False))
    cluster.connect()
    yield cluster
    cluster.close()


@pytest.fixture(autouse=True)
def no_other_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that needs Ray in this process asks for the fixture ``cluster``; any other test starts none."""
    before = _ray_runs()
    yield
    if not before and "cluster" not in request.fixturenames:
        assert not _ray_runs(), "this test started Ray in the test process: it should use the fixture `cluster`"


def _ray_runs() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


def pytest_itemcollected(item: pytest.Item) -> None:
    """With ``pytest -n 2 --dist loadgroup`` all tests with the cluster run in one process, so there is one cluster."""
    if _needs_cluster(item):
        item.add_marker(pytest.mark.xdist_group("ray"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first; under xdist last, for that worker which has nothing else left."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: (not _needs_cluster(item), not _is_slow(item)))
    else:
        items.sort(key=lambda item: _is_slow(item) or _needs_cluster(item))


def pytest_collection_finish(session: pytest.Session) -> None:
    """xdist writes a group behind the name of its tests; there are versions of pytest in which that does nothing."""
    if session.config.getoption("loadgroup", default=False):
        assert all("@" in item.nodeid for item in session.items if _needs_cluster(item)), "xdist does not group the tests with the cluster"


def _needs_cluster(item: pytest.Item) -> bool:
    return "cluster" in getattr(item, "fixturenames", ())


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None
