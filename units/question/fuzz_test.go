package question

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"
)

// FuzzServe: what is asked arrives as it was written, to its end, and what is answered comes back so, or nothing of it.
func FuzzServe(f *testing.F) {
	for _, seed := range []string{"", "a", "\x00", "a\n\nb", "fail", "fail and more"} {
		f.Add([]byte(seed))
	}
	f.Add(bytes.Repeat([]byte("x"), 128<<10))
	turned := func(b []byte) []byte {
		b = bytes.Clone(b)
		for i := range b {
			b[i] ^= 0x55
		}
		return b
	}
	fails := func(b []byte) bool { return bytes.HasPrefix(b, []byte("fail")) }
	f.Fuzz(func(t *testing.T, asked []byte) {
		path, _ := serve(t, Server{Parallel: 2, Timeout: time.Minute, Failed: func(error) {}, Answer: func(_ context.Context, q []byte) ([]byte, error) {
			if !bytes.Equal(q, asked) {
				t.Errorf("%q arrives as %q", asked, q)
			}
			if fails(q) {
				return q, errors.New("it failed")
			}
			return turned(q), nil
		}})
		want := turned(asked)
		if fails(asked) {
			want = nil
		}
		if got := ask(path, asked); got != string(want) {
			t.Errorf("to %q the answer is %q, want %q", asked, got, want)
		}
	})
}
