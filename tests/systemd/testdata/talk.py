# Clients that call a tool all the time, each over one connection that it keeps. One has a session (2025-11-25), one has none
# (2026-07-28). It prints a line for each connection and each answer: the client's name, and "connects", "right", "broken" if the
# connection ended instead of an answer, or "WRONG" with the answer. It ends with its stdin.
import http.client, itertools, json, os, sys, threading

token = open("/var/lib/pfar/token").read().strip()
over, turn = threading.Event(), threading.Lock()


def say(*words):
    with turn:
        print(*words, flush=True)


class Connection(http.client.HTTPConnection):
    def connect(self):
        super().connect()
        say(self.client, "connects")


class Client:
    def __init__(self, name, session):
        self.name, self.modern, self.session, self.ids = name, not session, None, itertools.count(1)
        self.connection = Connection("127.0.0.1", 7417, timeout=120)
        self.connection.client = name

    def post(self, method, params, name=None):
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            message["id"] = next(self.ids)
        if self.modern:
            headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
            params["_meta"] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
        elif self.session:
            headers |= {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": self.session}
        try:
            self.connection.request("POST", "/mcp/hello", json.dumps(message), headers)
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as e:
            self.connection.close()
            say(self.name, "broken", repr(e))
            return None, None
        self.session = response.getheader("Mcp-Session-Id") or self.session
        return response.status, text

    def talk(self):
        if not self.modern:
            self.post("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": self.name, "version": "1"}})
            self.post("notifications/initialized", {})
        while not over.is_set():
            question = "%s-%d-" % (self.name, next(self.ids))
            status, text = self.post("tools/call", {"name": "echo", "arguments": {"message": question}}, "echo")
            if status is not None:
                say(self.name, "right" if status == 200 and question in text and '"isError":true' not in text else "WRONG %s %s" % (status, text))


clients = [Client("session", True), Client("alone", False)]
threads = [threading.Thread(target=c.talk) for c in clients]
for t in threads:
    t.start()
sys.stdin.read()
over.set()
for t in threads:
    t.join()
