package stderr

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/attach"
)

func TestStderrSaysWhenASegmentIsFull(t *testing.T) {
	var out bytes.Buffer
	full := 0
	l := &Log{out: &out, now: time.Now, full: func() { full++ }}
	for range 3 * 1024 {
		l.heard(time.Now(), strings.Repeat("x", attach.MaxLine))
	}
	if full != 3 {
		t.Errorf("%d bytes were %d full segments, want 3", out.Len(), full)
	}
}
