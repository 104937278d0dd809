package units

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNamesOfWhatIsKept(t *testing.T) {
	for _, bad := range []string{
		"", "server", "server.", "server.X", "server.9", "server.a_b", "server.a_", "server.a_abcdefg2_x", "server.a.abcdefg2", "server.abcdefghijklmno_abcdefg2", "server.a:b", "server.a\n", "sessions.x", "session",
		FDHTTP, FDUnix, FDServers, FDMetrics, "server." + strings.Repeat("a", 24), "server.ä", "stored",
	} {
		if IsKept(bad) {
			t.Errorf("%q is taken for a name of what the gateway keeps", bad)
		}
	}
	for _, good := range []string{FDSessions, FDSecrets, FDClients, FDPolicy, FDAudit, Kept("a", ""), Kept("my-notion-2", "abcdefg2"), Kept(strings.Repeat("a", 23), ""), Kept(strings.Repeat("a", 23), "abcdefg2")} {
		if !IsKept(good) || len(good) > longest {
			t.Errorf("%q is not taken for a name of what the gateway keeps", good)
		}
	}
}

// longest is the length of the longest name, in bytes.
const longest = len("server.") + 23

// TestStoredNamesFitTheEnvironment: with as many as there may be, a process can still be started. Its listeners have
// names as well.
func TestStoredNamesFitTheEnvironment(t *testing.T) {
	const variable, listeners, most = len("LISTEN_FDNAMES="), 8 * (len("pfar-gateway.socket") + 1), 128 << 10
	if n := variable + listeners + MaxStored*(longest+1); n >= most {
		t.Errorf("%d names take %d bytes, a variable has %d", MaxStored, n, most)
	}
}

func TestStoreSends(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if s := NewStore(); s != nil {
		t.Errorf("a store without a manager: %+v", s)
	}
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	s := NewStore()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, bad := range []string{FDHTTP, "server.x\nREADY=1", "server.x:http"} {
		if err := s.Keep(bad, r); err == nil {
			t.Errorf("stored under %q", bad)
		}
	}
	if err := s.Keep(Kept("x", ""), r, w); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(Kept("x", "")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		text  string
		files int
	}{{"FDSTORE=1\nFDPOLL=0\nFDNAME=server.x", 2}, {"FDSTOREREMOVE=1\nFDNAME=server.x", 0}} {
		b, oob := make([]byte, 4096), make([]byte, 4096)
		n, oobn, _, _, err := manager.ReadMsgUnix(b, oob)
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range msgs {
			fds, _ := unix.ParseUnixRights(&msgs[i])
			files += len(fds)
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
		if string(b[:n]) != want.text || files != want.files {
			t.Errorf("the manager got %q with %d descriptors, want %q with %d", b[:n], files, want.text, want.files)
		}
	}
	manager.Close()
	if err := s.Keep(Kept("x", ""), r); err == nil {
		t.Error("no error where nobody listens")
	}
}
