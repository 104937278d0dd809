package native

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// TestOwnersFile: a file that a flow has written has the flow's label only for as long as nobody else writes to it or
// puts another one in its place. Its owner's text is taken for the worst.
func TestOwnersFile(t *testing.T) {
	put := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		change func(t *testing.T, path string)
		want   gate.Label
		reads  string
	}{
		"nobody": {func(*testing.T, string) {}, clean, `"a flow's"`},
		"written over": {func(t *testing.T, path string) {
			put(t, path, "the owner's")
		}, gate.Worst.Output, `"the owner's"`},
		"written over, as many bytes": {func(t *testing.T, path string) {
			put(t, path, "my own--")
			if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil { // another time than the flow's
				t.Fatal(err)
			}
		}, gate.Worst.Output, `"my own--"`},
		"replaced by one as old": {func(t *testing.T, path string) {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			put(t, path+".new", "replaced")
			if err := os.Chtimes(path+".new", time.Time{}, st.ModTime()); err != nil {
				t.Fatal(err)
			}
			rename(t, path+".new", path)
		}, gate.Worst.Output, `"replaced"`},
		"moved away and back": {func(t *testing.T, path string) {
			rename(t, path, path+".away")
			rename(t, path+".away", path)
		}, clean, `"a flow's"`},
		"gone": {func(t *testing.T, path string) { rename(t, path, path+".away") }, gate.Worst.Output, `!no file "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			n, _, _ := newNodes(t)
			call(t, n, "write-file", `{"path":"a","content":"a flow's"}`, clean, `"a"`)
			tt.change(t, filepath.Join(n.Files.Dir, "laptop", "a"))
			path := "a"
			if l, err := n.Files.Worst("laptop", &path); err != nil || l != tt.want {
				t.Errorf("before the call it has %s, %v, want %s", l, err, tt.want)
			}
			l := call(t, n, "read-file", `{"path":"a"}`, clean, tt.reads)
			if l != tt.want && tt.reads[0] != '!' {
				t.Errorf("it has %s, want %s", l, tt.want)
			}
			call(t, n, "write-file", `{"path":"a","content":"once more"}`, raw, `"a"`)
			if l := call(t, n, "read-file", `{"path":"a"}`, clean, `"once more"`); l != raw {
				t.Errorf("after the next flow it has %s, want %s", l, raw)
			}
		})
	}
}

// TestLabelWhileWriting: while a flow writes over a file, both what was there and the new content have the worse label
// of the two, in case the machine stops there.
func TestLabelWhileWriting(t *testing.T) {
	n, _, _ := newNodes(t)
	call(t, n, "write-file", `{"path":"a","content":"private"}`, secret, `"a"`)
	renamed, worse := 0, secret.Join(raw)
	n.Files.renamed = func() { // the lock is held
		renamed++
		mark, err := n.Files.find("laptop", "a")
		if err != nil {
			t.Error(err)
		}
		if l, err := n.Files.label("laptop", "a", mark); err != nil || l != worse {
			t.Errorf("after renaming %d it has %s, %v, want %s", renamed, l, err, worse)
		}
	}
	call(t, n, "write-file", `{"path":"a","content":"found"}`, raw, `"a"`)
	if renamed != 2 {
		t.Errorf("%d renamings, want 2", renamed)
	}
	if l := call(t, n, "read-file", `{"path":"a"}`, clean, `"found"`); l != raw {
		t.Errorf("it has %s, want %s", l, raw)
	}
}
