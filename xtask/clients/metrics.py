"""Both forms of /metrics, as the Prometheus client for Python reads them."""

import os
import sys
import time
import urllib.request

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as plain

URL = os.environ["TENURE_SIDECAR"].rstrip("/") + "/metrics"
TOKEN = os.environ["TENURE_SIDECAR_TOKEN"]


def scrape(accept):
    request = urllib.request.Request(URL)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Accept", accept)
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(families):
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    }


def leads(families):
    status = [f for f in families if f.name == "leader_election_master_status"]
    return bool(status) and any(sample.value == 1 for sample in status[0].samples)


def read():
    kind, text = scrape("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text"), kind
    # Fails by itself where the text is not as the specification wants it.
    strict = list(openmetrics.text_string_to_metric_families(text))
    kind, text = scrape("text/plain")
    assert kind.startswith("text/plain"), kind
    return strict, list(plain.text_string_to_metric_families(text))


strict, loose = read()
until = time.monotonic() + 30
while not leads(strict):
    assert time.monotonic() < until, "it does not lead"
    time.sleep(0.1)
    strict, loose = read()
differing = samples(strict) ^ samples(loose)
if differing:
    sys.exit(f"only in one of the two forms: {sorted(differing)}")
lacking = [family.name for family in strict if not family.documentation]
if lacking:
    sys.exit(f"without a help text: {lacking}")
print(f"{len(strict)} families, {len(samples(strict))} samples")
