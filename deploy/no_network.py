"""Whether the pod that runs this can reach anybody: says `no network` where it cannot, and fails where it can.

The addresses are the cluster's own, which is there where the world is not, and those of public name servers, which
answer everybody; neither a name nor a byte of one's own is sent.
"""

import os
import socket
import sys

CLUSTER = os.environ.get("KUBERNETES_SERVICE_HOST"), int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
WORLD = ("1.1.1.1", 443), ("8.8.8.8", 53), ("9.9.9.9", 443)

for address in (*([CLUSTER] if CLUSTER[0] else []), *WORLD):
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError as problem:
        print(f"{address[0]}: {problem}")
    else:
        sys.exit(f"there IS a network: {address[0]} was reached.")
print("no network")
