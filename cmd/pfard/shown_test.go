package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestLogPath: pfard names the log of a declared server whose log is a file.
func TestLogPath(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	local := d.options.local
	for _, test := range []struct {
		local        bool
		server, want string
	}{{true, "b", ""}, {true, "nobody", "no such server"}, {true, "../b", "no such server"}, {false, "b", "pfar logs b"}} {
		d.within(t, func() { d.options.local = test.local })
		path, err := shown{d}.logPath(test.server)
		if test.want == "" && (err != nil || path != d.fleet.runner.Log("b")) ||
			test.want != "" && (path != "" || err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %q, %v", test, path, err)
		}
	}
	d.within(t, func() { d.options.local = local })
}
