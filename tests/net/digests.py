"""Random keys and messages with their SHA-256 and HMAC-SHA256, one line each in hexadecimal; "-" is nothing."""
import hashlib
import hmac
import os
import random

for _ in range(500):
    key, message = os.urandom(random.randrange(200)), os.urandom(random.randrange(1000))
    print(key.hex() or "-", message.hex() or "-", hashlib.sha256(message).hexdigest(),
          hmac.new(key, message, "sha256").hexdigest())
