// Package systemd tests pfar as it is installed, on machines whose PID 1 is Debian's systemd.
package systemd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/image"
	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/systemd/bed"
)

func TestMain(m *testing.M) {
	bed.Play()
	if os.Getenv(victimVariable) != "" {
		victim()
	}
	if program := os.Getenv(launcherVariable); program != "" {
		fmt.Fprintln(os.Stderr, launcher(program))
		return
	}
	if v := os.Getenv(internetVariable); v != "" {
		panic(internet.Serve(strings.TrimPrefix(v, noTLS)))
	}
	if roots := os.Getenv(identityVariable); roots != "" {
		panic(endpoint(roots))
	}
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// machines are what every test boots its own from: m := machines.Boot(t). A boot takes a third of a second. Without
// -short their programs have the race detector; Debian's libc, which that takes, is the one of the image.
var machines *bed.Bed

func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, fmt.Errorf("tests/systemd boots machines as root, and this is uid %d", os.Geteuid())
	}
	before, err := bed.Look()
	if err != nil {
		return 1, err
	}
	start := time.Now()
	if machines, err = bed.Open(context.Background(), cache, install(race()...)); err != nil {
		return 1, err
	}
	defer machines.Close()
	fmt.Printf("image and installation: %s\n", time.Since(start).Round(time.Millisecond))
	code = m.Run()
	return code, before.Same(time.Minute)
}

// goBuild begins the command that builds the tests' own programs. The flags are those of make test's other builds, so
// that go's cache serves all of them.
var goBuild = []string{"-C", root, "build", "-trimpath", "-buildvcs=false", "-ldflags=-w"}

const (
	root  = "../.."
	cache = root + "/build/systemd"
)

// Where machines have the tests' own programs, and the servers from npm.
const (
	programs = "/usr/local/lib/pfar-tests"
	servers  = "/var/lib/pfar/servers"
)

// race are the options for make of programs that find their own races.
func race() []string {
	if testing.Short() {
		return nil
	}
	return []string{"RACE=1"}
}

// install has dpkg install the package of pfar, made with options for make, and brings the tests' own.
func install(options ...string) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		return errors.Join(unpack(ctx, dir, options...), bring(ctx, dir), bringBrowser(ctx, dir))
	}
}

// unpack installs the package where systemd does not run: on the root file system that dir lies over. pfar.target is
// disabled then, since each test says when pfar starts.
func unpack(ctx context.Context, dir string, options ...string) error {
	debian, err := image.Root(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "unpacked-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := packed(ctx, "deb", newVersion, work, options...); err != nil {
		return err
	}
	const script = `package=$(echo "$1"/*.deb); cd "$1"; mkdir memory; mount -t tmpfs -o mode=0755 tmpfs memory; cd memory; mkdir upper work root
mount -t overlay -o "lowerdir=$2:$3,upperdir=$PWD/upper,workdir=$PWD/work" overlay root
mount -t proc proc root/proc; mv "$package" root/package.deb
chroot root dpkg --install /package.deb; chroot root systemctl --quiet disable pfar.target
rm root/package.deb; umount root/proc root; cp -a upper/. "$2"`
	return command(ctx, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "unshare", "--mount", "sh", "-euc", script, "sh", work, dir, debian)
}

func bring(ctx context.Context, dir string) error {
	own := append(slices.Clone(goBuild), "-o", filepath.Join(dir, programs)+"/",
		"./tests/echo", "./tests/hostile", "./tests/clients", "./tests/standin")
	if err := command(ctx, []string{"CGO_ENABLED=0"}, "go", own...); err != nil {
		return err
	}
	return bringServers(ctx, dir, servers)
}

// bringServers copies the servers from npm to where a machine is to have them.
func bringServers(ctx context.Context, dir, to string) error {
	source := os.Getenv("PFAR_TEST_SERVERS")
	if source == "" {
		return errors.New("finding the servers from npm: PFAR_TEST_SERVERS is not set; make test-systemd does that")
	}
	if err := os.MkdirAll(filepath.Join(dir, to), 0o755); err != nil {
		return err
	}
	return command(ctx, nil, "cp", "-R", "--preserve=mode,links", filepath.Join(source, "node_modules"), filepath.Join(dir, to))
}

// command runs a program of the host.
func command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") { // the flags of the make that runs this test
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	return nil
}
