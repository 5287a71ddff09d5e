"""Whether the pod that runs this can reach the world: says `no network` where it cannot, and fails where it can.

The addresses are of public name servers, which answer everybody; neither a name nor a byte of one's own is sent.
"""

import socket
import sys

WORLD = (("1.1.1.1", 443), ("8.8.8.8", 53), ("9.9.9.9", 443))

for address in WORLD:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError as problem:
        print(f"{address[0]}: {problem}")
    else:
        sys.exit(f"there IS a network: {address[0]} was reached.")
print("no network")
