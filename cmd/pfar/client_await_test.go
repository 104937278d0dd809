package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestClientAddAwaits wants the client to be there when the command returns, and to be told what it lacks.
func TestClientAddAwaits(t *testing.T) {
	b := newBench(t, "")
	dir := b.dirs.Clients()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := b.pfard(t, control.Report{Clients: dir, ClientFiles: control.ClientFiles{}}, nil)
	written, err := watchDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer written.close()
	done := make(chan int)
	go func() { done <- b.run(t.Context(), []string{"client", "add", "desk"}) }()
	var src []byte
	for errors.Is(err, fs.ErrNotExist) || src == nil {
		if err := written.wait(); err != nil {
			t.Fatal(err)
		}
		src, err = os.ReadFile(filepath.Join(dir, "desk.hcl"))
	}
	select {
	case code := <-done:
		t.Fatalf("it returned before pfard had read the file: %d, %s", code, b.err)
	default:
	}
	sum := sha256.Sum256(src)
	p.set(func(r *control.Report) {
		r.ClientFiles = control.ClientFiles{filepath.Join(dir, "desk.hcl"): hex.EncodeToString(sum[:])}
	})
	if code := <-done; code != 0 || !strings.HasPrefix(b.out.String(), "pfar_") {
		t.Errorf("%d: %s", code, b.err)
	}
	if says := b.err.String(); strings.Contains(says, "no pfard") || !strings.Contains(says, "it may use no server yet: pfar client set desk --servers NAMES\n") {
		t.Errorf("it says %q", says)
	}
}
