"""The other rank of a store: store_peer.py client|server PORT"""
import datetime
import sys
import time

import torch.distributed as dist

is_server = sys.argv[1] == "server"
tcp = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=is_server, wait_for_workers=False,
                    timeout=datetime.timedelta(seconds=60))
store = dist.PrefixStore("lockstep/0", tcp)
store.set("from/python", "hello")
print(store.get("from/lockstep").decode(), flush=True)
store.set("python/left", "1")
if is_server:
    time.sleep(1)  # The other side still reads.
