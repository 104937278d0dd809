package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/cmd/pfar-sandbox/rootfs"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// A server whose source was replaced between the launcher's look and the overlay is started again.
func TestServerWhoseSourceWasReplaced(t *testing.T) {
	l := launcher{status: status{pfard: &attachment{told: map[string]string{}}}}
	why := fmt.Errorf("preparing the server's namespaces: %w", rootfs.ErrReplaced)
	if code, err := l.cannotStart(why); code != units.ExitGateway || !errors.Is(err, rootfs.ErrReplaced) {
		t.Errorf("the start ends with %d, %v; want another try", code, err)
	}
}

// What is in memory is bounded in files too, with or without a cgroup.
func TestFilesInMemory(t *testing.T) {
	s := script("cd /scratch && seq 2000 | xargs touch 2>/dev/null; ls | wc -l; stat -c %a . ; cat > /dev/null")
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Tmpfs, Dest: "/scratch", Size: 1 << 20, Perms: 0o1777})
	r := begin(t, s, nil)
	r.hello()
	var files, mode int
	if _, err := fmt.Fscan(r.stdout, &files, &mode); err != nil || files == 0 || files >= 512 || mode != 1777 {
		t.Errorf("%d files in 1 MiB, mode %d, %v\n%s", files, mode, err, r.logged())
	}
}

// The kernel has terminals for all processes of the machine together: one server cannot take them from the others.
func TestTerminals(t *testing.T) {
	r := begin(t, script(`perl -e '$| = 1; $n++ while $n < 500 && open($f[$n], "+<", "/dev/ptmx"); print "$n $!\n"; @f = ();
		open($f, "+<", "/dev/ptmx") or print "$!\n"; ioctl($f, 0x80045430, $i = pack("i", 0)) or print "$!\n"; print -c "/dev/pts/" . unpack("i", $i), "\n"'; cat`), nil)
	r.hello()
	out := bufio.NewScanner(r.stdout)
	for _, want := range []string{"64 No space left on device", "1"} {
		if !out.Scan() || out.Text() != want {
			t.Errorf("got %q, want %q\n%s", out.Text(), want, r.logged())
		}
	}
}

// BenchmarkViews starts the same sandbox with binds and with overlays in turns.
func BenchmarkViews(b *testing.B) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Fatal(err)
	}
	took := map[sandbox.Kind][]float64{}
	for b.Loop() {
		for _, kind := range []sandbox.Kind{sandbox.ROBind, sandbox.ROOverlay} {
			s := emptySandbox()
			for _, dir := range []string{"/etc/alternatives", "/etc/ssl/certs", "/etc/ld.so.cache", "/usr/share", "/usr/include", "/opt"} {
				s.Mounts = append(s.Mounts, sandbox.Mount{Source: dir, Dest: "/views" + dir})
			}
			for i := range s.Mounts {
				if s.Mounts[i].Kind != sandbox.Symlink {
					s.Mounts[i].Kind = kind
				}
			}
			began := time.Now()
			if err := runOnce(bwrap, s); err != nil {
				b.Fatal(err)
			}
			took[kind] = append(took[kind], float64(time.Since(began).Microseconds())/1000)
		}
	}
	for kind, all := range took {
		slices.Sort(all)
		b.ReportMetric(all[0], "ms-least/"+string(kind))
		b.ReportMetric(all[len(all)/2], "ms-median/"+string(kind))
	}
}

func runOnce(bwrap string, s sandbox.Sandbox) error {
	v, err := bubblewrap.Start(bwrap, s, bubblewrap.Network{}, bubblewrap.IDs{}, units.Secrets{})
	if err != nil {
		return err
	}
	if _, err := v.Sockets(); err != nil {
		return err
	}
	if err := v.Release(); err != nil {
		return err
	}
	said, _ := io.ReadAll(v.Stderr)
	if err := <-v.Exited(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}
