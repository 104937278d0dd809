package main

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestAStuckGatewayIsShown: in the status and in pfard's own unit, as long as one is stuck. pfard's own chain can be
// written: that is how a disk is on which root has a reserve.
func TestAStuckGatewayIsShown(t *testing.T) {
	d, _, _ := fixture(t)
	_, shown := journaled(t, d)
	socket := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- control.Serve(ctx, l, d.answer) }()
	defer func() { cancel(); <-served }()
	client := control.Client{Path: socket}
	stuck := func(why string) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		heard, ended := make(chan struct{}, 1), make(chan error, 1)
		go func() { ended <- client.Stuck(ctx, why, func() { heard <- struct{}{} }) }()
		select {
		case <-heard:
		case err := <-ended:
			t.Fatal(err)
		}
		return func() { cancel(); <-ended }
	}
	const words = "the gateway's records cannot be written, so it calls nothing and accepts no pin: "
	// await looks at each status until it has one note of the gateway, or with "" none.
	await := func(want, line string) {
		t.Helper()
		err := client.Watch(t.Context(), func(r control.Report) error {
			i := slices.IndexFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, words) })
			if i < 0 && want == "" || i >= 0 && r.Notes[i] == words+want {
				return context.Canceled
			}
			return nil
		})
		if err != context.Canceled {
			t.Fatal(err)
		}
		d.reportNow(t)
		var got string
		_ = d.do(func() error { d.tell(); got = shown["pfard"]; return nil })
		if got != line {
			t.Errorf("pfard's unit says %q, want %q", got, line)
		}
	}
	await("", "")
	first := stuck("no space\n\x1b[31mleft")
	await("no space  [31mleft", words+"no space  [31mleft (pfar status)")
	second := stuck("no file")
	await("no file", words+"no file (pfar status)")
	first() // what another gateway says still counts
	await("no file", words+"no file (pfar status)")
	second()
	await("", "0 declared")
}
