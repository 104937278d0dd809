package packet

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzReceive: a packet is one JSON value as Go's parser reads it, or an error, and the next one is read as if it had
// not been.
func FuzzReceive(f *testing.F) {
	for _, seed := range []string{`{"text":"a"}`, `{"text":"a"}{}`, ``, `[]`, "\x00", `{"text":`, `{"TEXT":"a"}`, "{\"text\":\"\xff\"}", ` {} `, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > MaxMessage {
			return
		}
		from, to := ends(t)
		if _, err := from.c.Write(b); err != nil {
			t.Fatal(err)
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		if err := from.Send(message{"next"}, null); err != nil {
			t.Fatal(err)
		}
		var got, want message
		files, err := to.Receive(&got)
		if len(b) == 0 { // is how the end looks
			if !errors.Is(err, io.EOF) {
				t.Errorf("a packet of nothing is %+v, %v", got, err)
			}
			return
		}
		if wrong := json.Unmarshal(b, &want); (err == nil) != (wrong == nil) || err == nil && !reflect.DeepEqual(got, want) || len(files) > 0 {
			t.Errorf("%q is %+v, %d files, %v; want %+v, %v", b, got, len(files), err, want, wrong)
		}
		var next message
		files, err = to.Receive(&next)
		CloseAll(files)
		if err != nil || next.Text != "next" || len(files) != 1 {
			t.Errorf("behind %q comes %+v with %d files, %v", b, next, len(files), err)
		}
	})
}

// ends are those of a connection.
func ends(t *testing.T) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list [2]*Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		list[i] = New(c.(*net.UnixConn))
	}
	return list[0], list[1]
}
