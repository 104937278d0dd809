package attach

import (
	"bytes"
	"sync"
	"testing"

	"github.com/pfar/pfar/units"
)

// TestFeed sends what there is at once, then what there is of late, and files that nobody can change.
func TestFeed(t *testing.T) {
	theirs, ours := connected(t)
	var mu sync.Mutex
	set, changed := bytes.Repeat([]byte("x"), 2*64<<10), make(chan struct{}) // more than a packet has room for
	over := make(chan struct{})
	defer close(over)
	if err := ours.Feed(func() ([]byte, <-chan struct{}) {
		mu.Lock()
		defer mu.Unlock()
		return set, changed
	}, over); err != nil {
		t.Fatal(err)
	}
	receive := func(want []byte) {
		t.Helper()
		m, files, err := theirs.Receive()
		if err != nil || !m.Redact || len(files) != 1 {
			t.Fatalf("%+v, %d files, %v", m, len(files), err)
		}
		if _, err := files[0].Write([]byte("y")); err == nil {
			t.Error("the file can be written")
		}
		if got, err := units.ReadSealed(files[0], MaxSet); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	receive(set)
	mu.Lock()
	old := changed
	set, changed = []byte("new"), make(chan struct{})
	mu.Unlock()
	close(old)
	receive([]byte("new"))
}

func TestFeedWithoutSecrets(t *testing.T) {
	if err := (&Conn{}).Feed(nil, nil); err != nil {
		t.Error(err)
	}
}
