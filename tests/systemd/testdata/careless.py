# Leaves a secret wherever a stranger of the same user could find it: python3 careless.py SECRET DIRECTORY
import os, socket, sys, tempfile

secret = sys.argv[1].encode()
with open(sys.argv[2] + "/left", "wb") as left:
    left.write(secret)
held = tempfile.TemporaryFile()
held.write(secret)
held.flush()
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[2] + "/sock")
door.listen()
print("the secret is", sys.argv[1], flush=True)
while True:
    conn, _ = door.accept()
    with conn:
        try:
            conn.sendall(secret)
        except OSError:
            pass
