// Package journaltest stands in for journald and journalctl towards a program under test.
package journaltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long a test waits for an entry.
const Patience = 2 * time.Minute

// Journal takes entries as journald does. A program finds it where journald's socket is: in a mount namespace of its
// own, made by bubblewrap.
type Journal struct {
	t       testing.TB
	dir     string
	conn    *net.UnixConn
	entries chan map[string]string
}

// New begins to listen; it ends with the test.
func New(t testing.TB) *Journal {
	t.Helper()
	dir, err := os.MkdirTemp("", "journal") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, filepath.Join(dir, "socket"): 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	j := &Journal{t: t, dir: dir, conn: conn, entries: make(chan map[string]string, 10_000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.receive()
	}()
	t.Cleanup(func() { j.Close(); <-ended })
	return j
}

// Wrap has the command see this journal. Its Stderr becomes what $JOURNAL_STREAM names, unless it is set: then it is
// not connected, though the variable is there. What stderr returns, once the command has ended, was written to it.
func (j *Journal) Wrap(cmd *exec.Cmd) (stderr func() string) {
	j.t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		j.t.Fatal(err)
	}
	// /run is a tmpfs of the namespace, so that nothing is made in the host's.
	cmd.Args = append([]string{bwrap, "--dev-bind", "/", "/", "--tmpfs", "/run", "--bind", j.dir, "/run/systemd/journal",
		"--die-with-parent", "--", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = bwrap
	r, w, err := os.Pipe()
	if err != nil {
		j.t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Fd()), &st); err != nil {
		j.t.Fatal(err)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino))
	if cmd.Stderr == nil {
		cmd.Stderr = w
	}
	var text bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&text, r)
	}()
	stderr = sync.OnceValue(func() string {
		w.Close()
		<-read
		r.Close()
		return text.String()
	})
	j.t.Cleanup(func() {
		if s := stderr(); s != "" {
			j.t.Logf("on stderr: %.2000s", s)
		}
	})
	return stderr
}

// Close has nobody take entries any more; the socket's file stays.
func (j *Journal) Close() { j.conn.Close() }

// Next waits for the next entry: its fields by name.
func (j *Journal) Next() map[string]string {
	j.t.Helper()
	select {
	case e := <-j.entries:
		return e
	case <-time.After(Patience):
		j.t.Fatalf("no entry within %s", Patience)
		return nil
	}
}

// Rest returns what is there and has not been asked for.
func (j *Journal) Rest() (all []map[string]string) {
	for {
		select {
		case e := <-j.entries:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (j *Journal) receive() {
	b, oob := make([]byte, 1<<20), make([]byte, 64)
	for {
		n, oobn, _, _, err := j.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		if n == 0 && oobn == 0 { // of Settle: journald passes over it
			continue
		}
		data := b[:n]
		if oobn > 0 { // too large for a datagram: it is in a file
			if data, err = passed(oob[:oobn]); err != nil {
				j.t.Errorf("taking an entry's file: %v", err)
				return
			}
		}
		e, err := parse(data)
		if err != nil {
			j.t.Errorf("an entry that journald would not take: %v", err)
			return
		}
		j.entries <- e
	}
}

func passed(oob []byte) ([]byte, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d control messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors, %v", len(fds), err)
	}
	f := os.NewFile(uintptr(fds[0]), "entry")
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
}

// parse reads an entry (systemd.io/JOURNAL_NATIVE_PROTOCOL).
func parse(b []byte) (map[string]string, error) {
	e := map[string]string{}
	for len(b) > 0 {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			return nil, fmt.Errorf("%q has no end", b)
		}
		name, value, short := strings.Cut(string(line), "=")
		if b = rest; !short {
			if len(b) < 8 {
				return nil, fmt.Errorf("%q has no length", name)
			}
			n := binary.LittleEndian.Uint64(b)
			if b = b[8:]; n >= uint64(len(b)) || b[n] != '\n' {
				return nil, fmt.Errorf("%q says that it has %d bytes, and has others", name, n)
			}
			value, b = string(b[:n]), b[n+1:]
		}
		if name == "" || len(name) > 64 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || name[0] == '_' {
			return nil, fmt.Errorf("%q is not the name of a field", name)
		}
		if _, twice := e[name]; twice {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		e[name] = value
	}
	return e, nil
}
