package bubblewrap

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/rootfs"
)

// The launcher acts by the kind of a complaint, whatever its words are.
func TestComplaints(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		want     string
		replaced bool
	}{
		"powerless": {powerless{unix.EPERM}, noNamespaces(errors.New(unix.EPERM.Error())).Error(), false},
		"replaced": {
			fmt.Errorf("looking at %q: %w", "/a", rootfs.ErrReplaced),
			`preparing the server's namespaces: looking at "/a": the file was replaced meanwhile`, true,
		},
		"the words of both": {
			errors.New("setting lo up: the file was replaced meanwhile"),
			"preparing the server's namespaces: setting lo up: the file was replaced meanwhile", false,
		},
	} {
		err := readComplaint(complain(c.err))
		if err == nil || err.Error() != c.want || errors.Is(err, rootfs.ErrReplaced) != c.replaced {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for report, fails := range map[string]bool{"": true, "\x00": false, "\x000\n": false, "\xffwords": true} {
		if err := readComplaint([]byte(report)); (err != nil) != fails {
			t.Errorf("%q: %v", report, err)
		}
	}
}
