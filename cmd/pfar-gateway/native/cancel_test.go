package native

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCancelledWrite: a write that was cancelled while it waited for another client's changes neither the file nor its
// label.
func TestCancelledWrite(t *testing.T) {
	n, _, _ := newNodes(t)
	call(t, n, "write-file", `{"path":"a","content":"before"}`, clean, `"a"`)
	ready, err := n.Ready(Call{
		Name: "write-file", Who: laptop, Run: "r", Step: "s", Label: raw,
		Arguments: json.RawMessage(`{"path":"a","content":"after"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	n.Files.mu.Lock() // as another client's call does
	go func() {
		_, _, err := ready.Do(ctx)
		done <- err
	}()
	cancel()
	n.Files.mu.Unlock()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	b, err := os.ReadFile(filepath.Join(n.Files.Dir, "laptop", "a"))
	if err != nil || string(b) != "before" {
		t.Errorf("the file has %q, %v", b, err)
	}
	if l := call(t, n, "read-file", `{"path":"a"}`, clean, `"before"`); l != clean {
		t.Errorf("it has %s, want %s", l, clean)
	}
}
