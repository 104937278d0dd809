# A server that already runs on this machine, as a service of its own, at a Unix socket. pfar starts nothing but
# its adapter, in a sandbox that sees this socket and no other file of the server.
# pfar speaks with the server only if this user owns the socket and listens at it. Without owner, the user is root.
# pfar cannot confine the server. While it is not there its state is offline, and its tools leave the lists.
# Let the adapter connect: have the server make its socket with mode 0666, in a folder of its own with mode 0700.
description = "Notes of a service of this machine"
label       = "internal"

server {
  transport = "uds"
  path      = "/run/notes/mcp.sock"
  owner     = "notes"
}
