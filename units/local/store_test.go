package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const storing = `
import array, os, socket, sys, time
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.connect(os.environ["NOTIFY_SOCKET"])
def send(text, *fds): n.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
def keep(name, *fds): send(b"FDSTORE=1\nFDPOLL=0\nFDNAME=" + name, *fds)
def forget(name): send(b"FDSTOREREMOVE=1\nFDNAME=" + name)
names = os.environ.get("LISTEN_FDNAMES", "")
tcp = socket.create_server(("127.0.0.1", 0))
stream, _ = socket.socketpair()
packets, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); listener.bind(b"\0pfar-test-%%d" %% os.getpid()); listener.listen()
file = open(os.environ["LOG"])
r, w = os.pipe()
memory = os.memfd_create("x")
def fill():
    for i in range(1000): keep(b"server.x", r, r, r, r)
%s
time.sleep(30)`

// storingService runs a script that stores descriptors.
func storingService(t *testing.T, script string) (*service, chan event, dirs) {
	t.Helper()
	s, events, d := shell(t, "exec python3 -c '"+fmt.Sprintf(storing, script)+"'", func(s *service, sp *spec) { sp.env = append(sp.env, "LOG="+sp.log) })
	s.store = newStore()
	return s, events, d
}

// A process that was taken over cannot put into the store what is none of the gateway's, nor under a name that the next
// gateway would take for that of a listener.
func TestStoresOnlyWhatTheGatewayKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		killed bool
	}{
		"a TCP listener":            {`keep(b"server.x", tcp.fileno())`, true},
		"a stream":                  {`keep(b"server.x", r, stream.fileno())`, true},
		"a listener of packets":     {`keep(b"server.x", listener.fileno())`, true},
		"a file":                    {`keep(b"server.x", file.fileno())`, true},
		"a device":                  {`keep(b"server.x", os.open("/dev/null", os.O_RDONLY))`, true},
		"a directory":               {`keep(b"server.x", os.open("/", os.O_RDONLY))`, true},
		"a path":                    {`keep(b"server.x", os.open("/", os.O_PATH))`, true},
		"under a listener's name":   {`keep(b"http", r)`, true},
		"under no name":             {`send(b"FDSTORE=1", r)`, true},
		"under a name with a colon": {`keep(b"server.x:http", r)`, true},
		"under a name of two lines": {`send(b"FDNAME=server.x\nFDSTORE=1\nFDNAME=server.x\x00y", r)`, true},
		"under a session's mistake": {`keep(b"server.x_abc", r)`, true},
		"for no store":              {`send(b"READY=1", r)`, true},
		"with what to remove":       {`send(b"FDSTOREREMOVE=1\nFDNAME=server.x", r)`, true},
		"both at once":              {`send(b"FDSTOREREMOVE=1\nFDSTORE=1\nFDNAME=server.x", r)`, true},
		"to remove a listener":      {`forget(b"http")`, true},
		"too many":                  {`fill()`, true},
		"what the gateway keeps":    {`keep(b"server.x", packets.fileno(), r, w, memory); keep(b"server.x_abcdefg2", r); keep(b"sessions", memory); forget(b"server.x"); sys.exit(0)`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, events, _ := storingService(t, c.script)
			s.restart = never
			if name == "too many" {
				s.store.most = 100
			}
			s.start()
			defer s.stop()
			wait(t, events, event{activating, 0})
			if c.killed {
				wait(t, events, event{failed, 128 + int(unix.SIGKILL)})
			} else {
				wait(t, events, event{inactive, 0})
			}
			<-s.done
			if n := len(s.store.kept); n > 0 {
				t.Errorf("%d descriptors are still stored", n)
			}
		})
	}
}

// TestNobodyElseStores: whatever other than the gateway sends such descriptors is ended.
func TestNobodyElseStores(t *testing.T) {
	s, events, _ := storingService(t, `keep(b"server.x", r)`)
	s.store, s.restart = nil, never
	s.start()
	defer s.stop()
	wait(t, events, event{activating, 0})
	wait(t, events, event{failed, 128 + int(unix.SIGKILL)})
}

// TestStoredIsHandedOn: the next process gets what the one before it has stored, until that is removed; with the
// service it goes.
func TestStoredIsHandedOn(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, events, d := storingService(t, `
if not names:
    keep(b"server.x", int(os.environ["PIPE"]))
    keep(b"server.y", packets.fileno(), r, memory)
    keep(b"sessions", memory)
    os.kill(os.getpid(), 9)
print(names, flush=True)
if "server.y" in names:
    forget(b"server.y")
    os.kill(os.getpid(), 9)
os.write(3, b"from the third")`)
	prepare := s.prepare
	s.prepare = func() (spec, error) {
		sp, err := prepare()
		if len(s.store.kept) > 0 {
			w.Close()
			return sp, err
		}
		copied, err := dup(w) // the first process has it by inheritance, as a gateway has it from a launcher
		if err != nil {
			return spec{}, err
		}
		sp.env, sp.descriptors = append(sp.env, "PIPE=3"), []descriptor{{"", copied}}
		return sp, err
	}
	s.restart = new(impatience).again
	s.start()
	defer s.stop()
	for range 2 {
		wait(t, events, event{activating, 0})
		wait(t, events, event{autoRestart, 128 + int(unix.SIGKILL)})
	}
	wait(t, events, event{activating, 0})
	b := make([]byte, 64)
	n, err := r.Read(b)
	if err != nil || string(b[:n]) != "from the third" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	log, _ := os.ReadFile(d.log("x"))
	if want := "server.x:server.y:server.y:server.y:sessions\nserver.x:sessions\n"; string(log) != want {
		t.Errorf("the processes got\n%swant\n%s", log, want)
	}
	s.stop()
	if err := r.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("the store outlives the service: %v", err)
	}
}

// TestManualKnowsThePatience: how long the store waits for a gateway that serves stands in its manual.
func TestManualKnowsThePatience(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-gateway.8")
	if err != nil {
		t.Fatal(err)
	}
	if says := fmt.Sprintf("the gateway has not served for %.0f seconds.", storePatience.Seconds()); !strings.Contains(string(b), says) {
		t.Errorf("the manual does not say %q", says)
	}
}

// TestStoreIsGivenUp: what is stored does not wait forever for a process that serves.
func TestStoreIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		name, script string
		patience     time.Duration
		lost         bool
	}{
		{"never serves", `sys.exit(1)`, time.Millisecond, true},
		{"has time", `sys.exit(1)`, time.Hour, false},
		{"serves", `send(b"READY=1"); sys.exit(1)`, time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, events, d := storingService(t, `
if not names: keep(b"sessions", memory)
print(names, flush=True)
`+c.script)
			s.store.patience, s.restart = c.patience, new(impatience).again
			s.start()
			for n := 0; n < 3; {
				if e := <-events; e.phase == autoRestart {
					n++
				}
			}
			s.stop()
			log, _ := os.ReadFile(d.log("x"))
			want := "\nsessions\nsessions\n"
			if c.lost {
				want = "\n\n\n"
			}
			if string(log) != want {
				t.Errorf("the processes got %q, want %q", log, want)
			}
		})
	}
}

func TestImpatience(t *testing.T) {
	i := new(impatience)
	for range 2 {
		for n, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second, time.Second} {
			if got, ok := i.again(1); got != want || !ok {
				t.Errorf("exit %d: again after %v, %v, want %v", n+1, got, ok, want)
			}
		}
		i.ended(ranWell - 1)
		if got, _ := i.again(1); got != time.Second {
			t.Errorf("after a process that ran for a moment: again after %v", got)
		}
		i.ended(ranWell)
	}
	i.again(1)
	i.served()
	if got, _ := i.again(1); got != 100*time.Millisecond {
		t.Errorf("after a process that served: again after %v", got)
	}
}
