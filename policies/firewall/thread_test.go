package firewall

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// A server's namespace is prepared by a process that stays outside, on as many threads as it takes.
func TestInNamespace(t *testing.T) {
	n := likeAServer()
	n.capabilities = append(n.capabilities, unix.CAP_SYS_ADMIN) // for unshare(2) and setns(2)
	if !n.runs(t) {
		return
	}
	netns := elsewhere(t)
	before := own(t)
	for range 20 {
		var there string
		err := InNamespace(netns, func() error {
			there = own(t)
			if ipv6, err := Loopback(); err != nil || !ipv6 {
				t.Errorf("Loopback: %v, %v", ipv6, err)
			}
			if err := Apply(policy(t, "192.0.2.0/24:5432").Ruleset()); err != nil {
				t.Error(err)
			}
			log, err := OpenLog(egress.LogGroup)
			if err != nil {
				return err
			}
			return log.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		if there == before || own(t) != before {
			t.Fatalf("it ran in %s of %s, and this thread is in %s", there, before, own(t))
		}
	}
	if main, err := os.Readlink("/proc/self/ns/net"); err != nil || main != before {
		t.Errorf("the main thread is in %s, %v", main, err)
	}
	if got := nft(t, "list", "ruleset"); got != "" {
		t.Errorf("outside there is\n%s", got)
	}
	failed := errors.New("failed")
	if err := InNamespace(netns, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("its error is %v", err)
	}
	file, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ran := false
	if err := InNamespace(file, func() error { ran = true; return nil }); !errors.Is(err, unix.EINVAL) || ran {
		t.Errorf("in what is no namespace: %v, ran: %v", err, ran)
	}
}

// own is the calling thread's network namespace.
func own(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink("/proc/self/task/" + strconv.Itoa(unix.Gettid()) + "/ns/net")
	if err != nil {
		t.Error(err)
	}
	return s
}

// elsewhere returns a network namespace that no process is in.
func elsewhere(t *testing.T) *os.File {
	t.Helper()
	here, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	var there *os.File
	err = InNamespace(here, func() error { // for its throwaway thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		there, err = os.Open("/proc/self/task/" + strconv.Itoa(unix.Gettid()) + "/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	return there
}
