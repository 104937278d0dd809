package vm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPowerOff has a tree go in as a payload, cuts the power between a file that was synced and one that was not, and
// boots the same disk again, with what the first boot has enabled.
func TestPowerOff(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a virtual machine; run without -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	m := machine(ctx, t)
	disk, err := m.Disk(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	boot := func(b Boot) Outcome {
		t.Helper()
		b.Disk = disk
		out, err := m.Run(ctx, b)
		t.Logf("%s", out.Took.Round(time.Millisecond))
		if err != nil {
			t.Fatalf("%v\nconsole:\n%s", err, out.Console)
		}
		return out
	}
	out := boot(Boot{Files: map[string]string{"run": script(t, `set -e
test "$(stat -c %a:%U tree/usr/lib/some-program)" = 750:root
test "$(readlink tree/link)" = /usr/lib/some-program
cp -a tree/. /
systemctl enable some.service
echo safe >/var/safe
sync
echo lost >/var/lost
date -s '2031-01-01 00:00:00Z' +clock:%Y
echo now
sleep 1000`), "tree": tree(t)}, PowerOff: "now"})
	if out.Ended || !strings.Contains(out.Results, "clock:2031\n") {
		t.Errorf("the first boot ended: %t, and wrote %q", out.Ended, out.Results)
	}
	out = boot(Boot{Files: map[string]string{"run": script(t, `cat /var/safe
test -s /var/lost && echo the disk had it
systemctl is-active sysinit.target
until test -e /run/some; do sleep .1; done
cat /run/some`)}, Target: "multi-user.target"})
	if want := "safe\nactive\nstarted\n"; out.Results != want || out.Status != "0" {
		t.Errorf("the second boot wrote %q with status %q, want %q\nconsole:\n%s", out.Results, out.Status, want, out.Console)
	}
	if out, err := m.Run(ctx, Boot{Files: map[string]string{"run": script(t, "test ! -e /var/safe")}}); err != nil || out.Status != "0" {
		t.Errorf("the image has what was written to the disk: %v, status %q", err, out.Status)
	}
}

func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// tree is like what make install writes.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"usr/lib/some-program": "#!/bin/sh\necho started >/run/some\n",
		"usr/lib/systemd/system/some.service": "[Service]\nType=oneshot\nExecStart=/usr/lib/some-program\n" +
			"[Install]\nWantedBy=multi-user.target\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/usr/lib/some-program", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}
