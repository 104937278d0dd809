package trail

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
)

// TestRecordsOnAFullDisk: others fill the disk on which the audit lies, and records are written all the same for a
// while.
func TestRecordsOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system of its own")
	}
	mount := t.TempDir()
	if err := unix.Mount("audit", mount, "tmpfs", 0, "size=128m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH)
	d := Dir{Path: filepath.Join(mount, "audit"), Group: -1}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	f, _, err := d.Open("gateway", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{Writer: "gateway"})
	if err := l.Use(f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mount, "filler"), make([]byte, 256<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	for i := range 200 {
		if err := l.Append(&audit.Record{Kind: audit.Open, ID: audit.NewID(), Tool: "search"}); err != nil {
			t.Fatalf("record %d on a full disk: %v", i, err)
		}
	}
	if err := l.Sync(); err != nil {
		t.Errorf("syncing on a full disk: %v", err)
	}
	if err := l.End(); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(f.W.Name()); err != nil || st.Size() > 1<<20 {
		t.Errorf("what is reserved shows in the file's size: %v, %v", st, err)
	}
}

// bounded is a disk that reserves no more than most bytes at once.
type bounded struct {
	disk
	all, most int64
	asked     []int64
}

func (b *bounded) Blocks() (int64, error) { return b.all, nil }

func (b *bounded) Reserve(_, bytes int64) error {
	b.asked = append(b.asked, bytes)
	if bytes > b.most {
		return unix.ENOSPC
	}
	return nil
}

func TestRoomIsWhatThereIs(t *testing.T) {
	for name, c := range map[string]struct{ all, most, room int64 }{
		"a large disk":    {1 << 40, 1 << 30, mostRoom},
		"little is free":  {1 << 40, 300 << 10, 256 << 10},
		"a small disk":    {128 << 20, 1 << 30, 128 << 10},
		"a tiny disk":     {256 << 10, 1 << 30, leastRoom},
		"nothing is free": {1 << 40, 0, leastRoom},
	} {
		b := &bounded{all: c.all, most: c.most}
		f := &file{disk: b, size: 1000}
		f.reserve()
		if f.room != 1000+c.room {
			t.Errorf("%s: %d bytes, want %d", name, f.room-1000, c.room)
		}
		asked := len(b.asked)
		f.size += (f.room-f.size)/2 - 1
		if f.reserve(); len(b.asked) != asked {
			t.Errorf("%s: asked again with room left", name)
		}
	}
}
