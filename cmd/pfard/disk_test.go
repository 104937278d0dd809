package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

const withHome = "server {\n  command = \"sh\"\n}\nsandbox {\n  state = %t\n}\n"

// fills writes megabytes to a server's private home.
func fills(t *testing.T, homes, name string, megabytes int) {
	t.Helper()
	dir := filepath.Join(homes, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, megabytes<<20), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestServerThatFillsTheDiskIsStopped before nothing can be recorded any more, and no other server is.
func TestServerThatFillsTheDiskIsStopped(t *testing.T) {
	d, m, changed := fixture(t)
	told := make(chan failure, 9)
	homes, free := t.TempDir(), uint64(50<<30)
	looks := 0
	if err := d.do(func() error {
		d.fleet.owner = ownerFunc(func(f failure) { told <- f })
		d.fleet.homes = homesFunc(func() { looks++ })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, state := range map[string]bool{"hostile": true, "large": true, "small": true, "none": false} {
		d.put(t, name+".hcl", fmt.Sprintf(withHome, state))
	}
	fills(t, homes, "large", 40) // of earlier days
	changed <- struct{}{}
	g := newDiskGuard(d.fleet, homes, nil, nil)
	g.free = func(string) (uint64, uint64, error) { return free, 100 << 30, nil }
	look := func(want string) {
		t.Helper()
		g.look()
		stopped := ""
		for name, s := range d.state(t) {
			if s.State == control.Failed {
				stopped = name
			}
		}
		if stopped != want {
			t.Fatalf("%q is stopped, want %q", stopped, want)
		}
	}
	look("")
	if looks != 3 {
		t.Errorf("three servers with a home have started, and it is to be looked at %d times", looks)
	}
	fills(t, homes, "hostile", 30)
	fills(t, homes, "small", 1)
	look("") // there is room
	free = 900 << 20
	look("hostile")
	s := d.state(t)["hostile"]
	for _, part := range []string{"has grown by 30 MiB", "900 MiB are left", "pfar start hostile"} {
		if !strings.Contains(s.Detail, part) {
			t.Errorf("detail %q says nothing of %q", s.Detail, part)
		}
	}
	if f := <-told; f.server != "hostile" {
		t.Errorf("the owner is told of %q", f.server)
	}
	look("hostile") // the others have grown by little
	changed <- struct{}{}
	look("hostile") // a look at the files starts nothing
	if err := d.do(func() error { return d.orders.turn(control.Start, "hostile") }); err != nil {
		t.Fatal(err)
	}
	if m.count("hostile") != 2 {
		t.Errorf("%d starts, want 2: the owner has started it", m.count("hostile"))
	}
	look("")
}

func TestDiskThatIsNotKnown(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(withHome, true))
	changed <- struct{}{}
	d.state(t)
	homes := t.TempDir()
	g := newDiskGuard(d.fleet, homes, nil, nil)
	g.free = func(string) (uint64, uint64, error) { return 0, 0, nil } // some file systems do not say
	g.look()
	fills(t, homes, "a", 20)
	g.look()
	if s := d.state(t)["a"]; s.State == control.Failed {
		t.Errorf("stopped: %q", s.Detail)
	}
	if free, all, err := freeOn(homes); err != nil || all == 0 || free > all {
		t.Errorf("%d of %d bytes are free, %v", free, all, err)
	}
}

func TestDiskIsGuardedUntilTheEnd(t *testing.T) {
	d, _, _ := fixture(t)
	tick, looked := make(chan time.Time), make(chan struct{})
	again := make(chan time.Duration)
	g := newDiskGuard(d.fleet, t.TempDir(), tick, func(after time.Duration) { again <- after })
	g.free = func(string) (uint64, uint64, error) { looked <- struct{}{}; return 0, 0, nil }
	go g.guard(t.Context())
	for range 2 {
		tick <- time.Time{}
		<-looked // to judge the homes
		if after := <-again; after != diskIdle {
			t.Errorf("a disk that nobody writes to is looked at after %s", after)
		}
	}
}

// TestDiskRest: pfard wakes up often only where the disk could be full soon.
func TestDiskRest(t *testing.T) {
	for _, tt := range []struct {
		free uint64
		want time.Duration
	}{
		{0, time.Second}, {1 << 30, time.Second}, {3 << 30, 2 * time.Second}, {12 << 30, 11 * time.Second}, {1 << 40, 30 * time.Second},
	} {
		g := newDiskGuard(&fleet{}, "", nil, nil)
		g.began["one"] = 0
		g.free = func(string) (uint64, uint64, error) { return tt.free, 1 << 41, nil }
		if got := g.rest(); got != tt.want {
			t.Errorf("with %d bytes free: %s, want %s", tt.free, got, tt.want)
		}
	}
}
