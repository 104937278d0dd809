package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// chatHost stands for a Matrix homeserver with one room, to which the owner invites pfar. Each file of its folder is a
// message of the owner's. It says what pfar writes and deletes there, and who comes without the token.
const chatHost = `
import http.server, json, os, re, threading, time
PFAR, ADA, ROOM, IN = "@pfar:home.test", "@ada:home.test", "!r:home.test", "/run/home"
lock, events, taken, gone, now = threading.Lock(), [], set(), set(), {"joined": False, "quiet": False}
def event(n):
    content = {} if n in gone else {"msgtype": "m.text", "body": events[n][1]}
    return {"event_id": "$%d" % n, "type": "m.room.message", "sender": events[n][0], "content": content}
def come():
    for name in sorted(n for n in set(os.listdir(IN)) - taken if n.isdigit()): # the others are not whole yet
        taken.add(name)
        events.append((ADA, open(IN + "/" + name).read()))
def state(kind, key, content): return {"type": kind, "state_key": key, "sender": ADA, "content": content}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        path, _, query = self.path.partition("?")
        if self.headers["Authorization"] != "Bearer sesame-0123456789":
            print("a stranger asks", flush=True)
            return 401, {"errcode": "M_UNKNOWN_TOKEN"}
        if path.endswith("/sync"):
            return 200, self.news(re.search("since=s([0-9]+)", query))
        with lock:
            if path.endswith("/whoami"): return 200, {"user_id": PFAR}
            if path.endswith(".m.rule.master/enabled"):
                now["quiet"] = now["quiet"] or self.command == "PUT"
                return 200, {"enabled": now["quiet"]}
            if "/join" in path:
                now["joined"] = True
            if path.endswith("/state"):
                return 200, [
                    state("m.room.create", "", {}), state("m.room.power_levels", "", {"users": {PFAR: 100}}),
                    state("m.room.member", ADA, {"membership": "join"}),
                    state("m.room.member", PFAR, {"membership": "join"})]
            if "/send/" in path:
                events.append((PFAR, json.loads(body)["body"]))
                print("pfar says:", events[-1][1].replace("\n", " "), flush=True)
                return 200, {"event_id": "$%d" % (len(events) - 1)}
            if "/redact/" in path:
                gone.add(int(re.search("/redact/(?:\\$|%24)([0-9]+)", path)[1]))
                print("pfar deletes:", sorted(gone), flush=True)
                return 200, {"event_id": "$r"}
            if "/event/" in path:
                return 200, event(int(re.search("/event/(?:\\$|%24)([0-9]+)", path)[1]))
            return 200, {}
    def news(self, since):
        while True:
            with lock:
                come()
                if not since or not now["joined"] or len(events) > int(since[1]):
                    first = int(since[1]) if since else 0
                    rooms = {"join": {ROOM: {"timeline": {"events": [event(n) for n in range(first, len(events))]}}}}
                    if not now["joined"]:
                        member = dict(state("m.room.member", PFAR, {"membership": "invite", "is_direct": True}))
                        rooms = {"invite": {ROOM: {"invite_state": {"events": [member]}}}}
                    return {"next_batch": "s%d" % len(events), "rooms": rooms}
            time.sleep(0.05)
    def reply(self):
        status, answer = self.answer()
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_GET = do_POST = do_PUT = reply
    def log_message(self, *_): pass
os.makedirs(IN, exist_ok=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 8008), Handler).serve_forever()
`

const chatFile = `homeserver = "http://127.0.0.1:8008"
user       = "@pfar:home.test"
token      = "vault:matrix"
owner      = "%s"
connect    = true
`

// chatting is a machine with a homeserver and a chat.
type chatting struct {
	*bed.Machine
	said int // by the owner
}

// says has the owner say something, and waits until pfar has said these words so many times.
func (c *chatting) says(t *testing.T, message, words string, times int) {
	t.Helper()
	c.said++
	c.Put(t, fmt.Sprintf("/run/home/%03d", c.said), message, 0o644)
	c.hears(t, words, times)
}

// hears waits until the homeserver has told so many times of something.
func (c *chatting) hears(t *testing.T, words string, times int) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		if log := c.Journal(t, "home.service"); strings.Count(log, words) < times {
			return fmt.Errorf("%q is there less than %d times:\n%s\n%s", words, times, log,
				c.Shell(t, "journalctl --no-pager -u 'pfar-*' -u pfard | tail -60"))
		}
		return nil
	})
}

// becomes waits until a verb says these words of the chat, or with without no longer does.
func (c *chatting) becomes(t *testing.T, verb, words string, there bool) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		if r := c.Try("pfar", verb); strings.Contains(r.String(), words) != there {
			return fmt.Errorf("pfar %s has %q: %t\n%s", verb, words, !there, r)
		}
		return nil
	})
}

func (c *chatting) token(t *testing.T, value string) {
	t.Helper()
	if r := c.Feed(value, "pfar", "vault", "set", "matrix"); r.Code != 0 {
		t.Fatal(r)
	}
}

// TestChatUnit: a unit with a user of its own, without a network and without the token, holds a chat: a service is set
// up by it, and a question comes to the gateway as the client of the chat. The way that it has leads to its homeserver
// and nowhere else. It begins again when it is killed, and when its file is another one; without the file nothing of it
// is left.
func TestChatUnit(t *testing.T) {
	t.Parallel()
	c := &chatting{Machine: appliance(t)}
	c.Put(t, "/root/home.py", chatHost, 0o644)
	c.Run(t, "systemd-run", "--quiet", "--unit=home", "python3", "/root/home.py")
	c.Put(t, "/etc/pfar/chat.d/home.hcl", fmt.Sprintf(chatFile, "@ada:home.test"), 0o644)
	c.becomes(t, "status", `the chat "home" has no key`, true)
	const unheld = `the chat "home" has not reached its homeserver`
	c.token(t, "not-the-token")
	c.becomes(t, "status", unheld, true)
	c.becomes(t, "doctor", unheld, true)
	c.token(t, "sesame-0123456789")
	c.hears(t, "pfar says: pfar is here.", 1)
	c.becomes(t, "status", `the chat "home"`, false)
	c.becomes(t, "doctor", `the chat "home"`, false)

	c.says(t, "connect notion", "needs", 1)
	const secret = "ntn_5q81LmX0aTgVb7RkPw3sYh5dWc2Q9e"
	c.says(t, secret, "The secret is stored. Its message is deleted.", 1)
	c.hears(t, "pfar deletes: [", 1)
	if r := c.Try("pfar", "vault", "list"); !strings.Contains(r.Stdout, "notion") {
		t.Errorf("the secret of the set-up is not there: %s", r)
	}
	const asked = "to have questions answered, write a file in models.d" // the gateway's word for its client
	c.says(t, "what is new today?", asked, 1)
	c.confined(t)
	c.Put(t, "/etc/pfar/policies.d/local.hcl", askedPolicy+"notice \"me\" {\n  chat = \"home\"\n}\n", 0o644)
	declareAsked(t, c.Machine)
	becomes(t, c.Machine, "hello", control.Running)
	callAsked(t, c.Machine, "hunter2")
	c.hears(t, "pfar says: pfar: a call waits for approval", 1)
	c.hears(t, "job calls hello.echo", 1)
	if log := c.Journal(t, "home.service"); strings.Contains(log, "hunter2") {
		t.Errorf("the homeserver has heard %s", log)
	}

	before := pid(t, c.Machine, "pfar-chat@home")
	c.Run(t, "systemctl", "restart", "pfard")
	c.becomes(t, "status", `the chat "home"`, false)
	c.says(t, "what is new now?", asked, 2)
	if now := pid(t, c.Machine, "pfar-chat@home"); now != before {
		t.Errorf("with pfard the process %s has become %s", before, now)
	}
	c.Run(t, "systemctl", "kill", "--signal=KILL", "pfar-chat@home", "pfar-model@home")
	c.says(t, "what is new since?", asked, 3)
	killed := pid(t, c.Machine, "pfar-chat@home")
	if killed == before || killed == "0" {
		t.Errorf("the process %s was killed, and now is %s", before, killed)
	}
	c.Put(t, "/etc/pfar/chat.d/home.hcl", fmt.Sprintf(chatFile, "@eve:home.test"), 0o644)
	bed.Eventually(t, soon, func() error {
		if now := pid(t, c.Machine, "pfar-chat@home"); now == killed || now == "0" {
			return fmt.Errorf("with another owner the process is %s", now)
		}
		return nil
	})
	c.Run(t, "rm", "/etc/pfar/chat.d/home.hcl")
	bed.Eventually(t, soon, func() error {
		left := c.Shell(t, "ls -d /run/pfar/chat /run/pfar/inspect 2>/dev/null || true; systemctl list-units --plain "+
			"--no-legend --state=active,activating,failed 'pfar-chat@*' 'pfar-model@*'; "+
			"getfattr -n system.posix_acl_access /run/pfar/gateway.sock 2>/dev/null || true")
		if left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}

// confined tries what the process of a chat, and its way, must not be able to do.
func (c *chatting) confined(t *testing.T) {
	t.Helper()
	uids := map[string]bool{"0": true, strings.TrimSpace(c.Run(t, "id", "-u", "pfar")): true}
	for _, unit := range []string{"pfar-chat@home", "pfar-model@home"} {
		uid := strings.TrimSpace(c.Shell(t, "ps -o uid= -p $(systemctl show -P MainPID "+unit+")"))
		if uids[uid] {
			t.Errorf("%s runs as user %s, as another does", unit, uid)
		}
		uids[uid] = true
	}
	const reaches = "exec 3<>/dev/tcp/127.0.0.1/8008"
	if r := c.Try("bash", "-c", reaches); r.Code != 0 {
		t.Fatalf("the machine does not reach the homeserver: %s", r)
	}
	inside := []string{"--net", "--target=" + pid(t, c.Machine, "pfar-chat@home")}
	if r := c.Try("nsenter", append(inside, "bash", "-c", reaches)...); r.Code == 0 {
		t.Errorf("the process of the chat reaches the homeserver by itself: %s", r)
	}
	if links := c.Run(t, "nsenter", append(inside, "ip", "-brief", "link")...); strings.Count(links, "\n") != 1 {
		t.Errorf("the process of the chat has the links %s", links)
	}
	beside := strings.ReplaceAll(besideNotice, "phone", "home")
	if r := c.Try("bash", "-c", fmt.Sprintf(beside, 8008)); r.Code != 0 {
		t.Errorf("its way does not lead to the homeserver: %s", r)
	}
	if r := c.Try("bash", "-c", fmt.Sprintf(beside, 7417)); r.Code == 0 || !strings.Contains(r.Stderr, "refused") {
		t.Errorf("its way leads elsewhere: %s", r)
	}
	for socket, users := range map[string][]string{
		"/run/pfar/inspect/home.sock":        {"pfar", "nobody"},
		"/run/pfar/chat/home.sock":           {"pfar", "nobody"},
		"/run/pfar/inspect/home.notice.sock": {"nobody"}, // the gateway is pfar
	} {
		const connect = `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new($ARGV[0]) or die "$!\n"' `
		for _, user := range users {
			r := c.Try("runuser", "-u", user, "--", "sh", "-c", connect+socket)
			if !strings.Contains(r.Stderr, "Permission denied") {
				t.Errorf("%s gets to %s: %s", user, socket, r)
			}
		}
	}
	if out := c.Shell(t, keyHunt); out != "" {
		t.Errorf("the token is in %s", out)
	}
}
