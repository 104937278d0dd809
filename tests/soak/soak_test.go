// Package soak runs pfar for long while everything around it is killed, restarted and edited, and counts what every
// call came to.
package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	duration = flag.Duration("duration", 30*time.Second, "how long the chaos lasts; a fifth of it with -short")
	seed     = flag.Uint64("seed", 0, "of what happens and when, as far as it is ours; 0 takes one")
)

const (
	clients = 28 // over HTTP, half of each generation
	bridges = 4  // over "pfar connect"

	callTimeout = 10 * time.Second // as declared, far more than any call but those to the late server takes
	lateTimeout = 6 * time.Second
	hang        = 5 * time.Minute // a call that takes longer has been forgotten: pfar's own timeouts have ended by then
	recovery    = 5 * time.Minute // for everything to serve again once the chaos has ended
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*duration /= 5
	}
	code := m.Run()
	if os.Getenv(binVariable) == "" {
		os.RemoveAll(scratch())
	}
	os.Exit(code)
}

// TestSoak has clients call all the time while chaos goes on. Every call must be answered once, by the server that it
// was for and with what it said, or fail with one of the errors that have a name, and then only while there was a
// reason for that error. When the chaos has ended, everything must serve again, and nothing may have grown.
func TestSoak(t *testing.T) {
	s := &soak{t: t, rand: newRand(t), tally: newTally(), stop: make(chan struct{}), slots: make(chan struct{}, 4)}
	s.pfar = start(t, s.fleet())
	s.awaitAll()
	s.exerciseAll("before the chaos")
	s.collect()
	before := s.weigh()

	var running sync.WaitGroup
	for n := range clients {
		c := s.newClient(n, []string{older, newer}[n%2])
		running.Go(func() { c.live(s.stop) })
	}
	for n := range bridges {
		b := s.newBridge(clients + n)
		s.bridges = append(s.bridges, b)
		running.Go(func() { b.live(s.stop) })
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watchLogs()
	}()
	s.chaos(*duration)
	close(s.stop)
	running.Wait()
	<-watched

	s.settle()
	s.exerciseAll("after the chaos")
	s.collect()
	s.compare(before, s.weigh())
	s.inspect()
	s.pfar.stop()
	s.leftovers()
	s.tally.judge(t, s.pfar)
}

// soak is one run.
type soak struct {
	t       *testing.T
	pfar    *pfar
	tally   *tally
	stop    chan struct{}
	bridges []*bridge

	slots    chan struct{} // of chaos's commands
	commands sync.WaitGroup
	asked    sync.Once

	mu   sync.Mutex
	rand *rand.Rand
}

func newRand(t *testing.T) *rand.Rand {
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("seed %d", n)
	return rand.New(rand.NewPCG(n, n))
}

// roll returns a number below n.
func (s *soak) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

// between returns a time that lies between two.
func (s *soak) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.roll(int(b-a)))
}

// exerciseAll calls every server in both generations, on the aggregate and on its own endpoint; each must answer. It
// stops at the first that does not: calls that wait for approvals would take the time of the whole test.
func (s *soak) exerciseAll(when string) {
	s.t.Helper()
	for _, version := range []string{older, newer} {
		c := s.newClient(1000, version)
		defer c.close()
		for _, v := range s.pfar.servers {
			for _, own := range []bool{false, true} {
				if got := c.once(request{server: v, own: own}); got != answered {
					s.t.Errorf("%s: a call to %s (%s, on its own endpoint %v) came to %q", when, v.name, version, own, got)
					return
				}
			}
		}
	}
}

// stained prints the label of the clients' session, at the first wrong answer: a call that waits for an approval
// has its reason there.
func (s *soak) stained() {
	s.asked.Do(func() {
		for _, args := range [][]string{{"sessions", "show", "default"}, {"approvals", "list"}} {
			out, err := s.pfar.command(args...)
			fmt.Printf("pfar %q: %v\n%s\n", args, err, out)
		}
	})
}

// ordinary is a uid that no account has: between the ranges that systemd and Debian give out.
const ordinary = 60998

// TestSoakAsOrdinaryUser runs the same once more, as a user without any privilege.
func TestSoakAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		return // this is that user
	}
	if testing.Short() {
		t.Skip("NOT RUN with -short: the same once more, as an ordinary user")
	}
	binary := filepath.Join(scratch(), "soak.test")
	self, err := os.Executable()
	check(t, err)
	copyTree(t, self, binary)
	bin, err := programs()
	check(t, err)
	reachable := ""
	if dir := npmServers(t); dir != "" {
		reachable = filepath.Join(scratch(), "servers")
		copyTree(t, dir, reachable)
		check(t, os.Chmod(reachable, 0o755))
	}
	home := filepath.Join(scratch(), "home")
	check(t, os.Mkdir(home, 0o700))
	check(t, os.Chown(home, ordinary, ordinary))
	path := "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
	if node, err := exec.LookPath("node"); err == nil {
		path += ":" + filepath.Dir(node)
	}
	c := exec.Command(binary, "-test.v", "-test.run=^TestSoak$", "-test.timeout=15m", // or nobody sees what hangs

		"-duration="+min(*duration, time.Minute).String(), "-seed="+strconv.FormatUint(*seed, 10))
	c.Dir = home
	c.Env = []string{"PATH=" + path, "HOME=" + home, "XDG_CONFIG_HOME=" + home + "/.config", "XDG_STATE_HOME=" + home + "/.local/state",
		"TMPDIR=/tmp", binVariable + "=" + bin, serversVariable + "=" + reachable}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", ordinary, err, out)
		return
	}
	t.Logf("as uid %d: %s", ordinary, strings.TrimSpace(string(out)))
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
