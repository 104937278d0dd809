package audit

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// growing is a file that is written to while it is read.
type growing struct {
	bytes.Buffer
	closed bool
}

func (g *growing) Close() error { g.closed = true; return nil }

// TestReaderTurns: the next file of a chain is there before the last record of the one before is written. What is
// written then is read, too, and an empty file in between, to which nothing ever was, ends nothing.
func TestReaderTurns(t *testing.T) {
	c := chain(6)
	var files []*growing
	opened := 0
	r := NewReader(func() (io.ReadCloser, error) {
		if opened == len(files) {
			return nil, nil
		}
		opened++
		return files[opened-1], nil
	})
	next := func(when, want string) {
		t.Helper()
		record, _, ok, err := r.Next()
		if err != nil || ok != (want != "") || ok && record.Tool != want {
			t.Fatalf("%s: %q, %v, %v, want %q", when, record.Tool, ok, err, want)
		}
	}
	next("no file", "")
	first, empty, last := new(growing), new(growing), new(growing)
	files = append(files, first)
	first.Write(join(c[:2]...))
	next("the first file", "tool0")
	next("the first file", "tool1")
	next("its end", "")
	files = append(files, empty)
	next("another one was made", "")
	first.Write(join(c[2]))
	next("written behind that", "tool2")
	next("its end", "")
	files = append(files, last)
	next("and one more", "")
	first.Write(join(c[3]))
	last.Write(join(c[4]))
	next("written to both", "tool3")
	next("written to both", "tool4")
	next("the end", "")
	last.Write(join(c[5]))
	next("the last file", "tool5")
	if !first.closed || !empty.closed || last.closed {
		t.Error("files are open that are not read, or the last is not")
	}
	if r.Close(); !last.closed {
		t.Error("the last file is open")
	}
}

// TestFirst: a file can begin with a part of a line, for which there was room on a full disk.
func TestFirst(t *testing.T) {
	c := chain(3)
	want := anchorOf(c, 1)
	for _, before := range []string{"", "~\n", string(c[1][:10]) + "~\n", string(c[1][:len(c[1])-1]) + "~\n", strings.Repeat("x", 9000) + "\n\n", string(c[1][:5]) + "~\n" + string(c[1][:7]) + "~\n"} {
		b := append([]byte(before), join(c[1:]...)...)
		base, err := BaseOf(bytes.NewReader(b), int64(len(b)))
		base.Chain = want.Chain
		if err != nil || base != want {
			t.Errorf("behind %.40q: %+v, %v, want %+v", before, base, err, want)
		}
		if since, err := Since(bytes.NewReader(b), int64(len(b))); err != nil || !since.Equal(time.Unix(1, 0)) {
			t.Errorf("behind %.40q: begun %v, %v", before, since, err)
		}
	}
	for _, none := range []string{"", "x", "x\n", strings.Repeat("y", 9000)} {
		if base, err := BaseOf(strings.NewReader(none), int64(len(none))); err == nil {
			t.Errorf("%.20q begins behind %+v", none, base)
		}
	}
}

// FuzzReader reads two files, and wants all whole lines of each that are records, in their order.
func FuzzReader(f *testing.F) {
	whole := join(chain(4)...)
	f.Add(whole, 0)
	f.Add(whole, len(whole)/2)
	f.Add(append([]byte("x\n\n{}\n"), whole...), 3)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		at = max(0, min(at, len(b)))
		files := [][]byte{b[:at], b[at:]}
		var want [][]byte
		for _, file := range files {
			lines := bytes.Split(file, []byte("\n"))
			for _, line := range lines[:len(lines)-1] {
				if _, err := Parse(line); err == nil {
					want = append(want, line)
				}
			}
		}
		r := NewReader(func() (io.ReadCloser, error) {
			if len(files) == 0 {
				return nil, nil
			}
			file := files[0]
			files = files[1:]
			return io.NopCloser(bytes.NewReader(file)), nil
		})
		for i := 0; ; i++ {
			_, line, ok, err := r.Next()
			if err != nil || ok != (i < len(want)) || ok && !bytes.Equal(line, want[i]) {
				t.Fatalf("record %d is %q, %v, %v, of %d in %q and %q", i, line, ok, err, len(want), b[:at], b[at:])
			}
			if !ok {
				return
			}
		}
	})
}
