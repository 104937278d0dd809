package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/internet"
)

const (
	hostAddress    = internet.Host
	evilAddress    = internet.Evil
	lanAddress     = internet.Private
	resolveAddress = internet.NameServer
)

// world is the stand-in for the internet, and what it has seen.
type world struct {
	pid       int
	authority string // certificate of the authority that its certificates are by
	events    <-chan internet.Event
}

// startInternet starts it. wrap is for pfar.up: a network whose only way out leads to it.
func startInternet(t *testing.T) (in *world, wrap []string) {
	t.Helper()
	dir := directory(t, "")
	in = &world{authority: filepath.Join(dir, "ca.pem")}
	certificate := filepath.Join(dir, "server.pem")
	makeCertificates(t, in.authority, certificate, "api.allowed.example", "*.wild.example", "evil.example", "wild.example")
	in.pid, in.events = startRole[internet.Event](t, "internet", certificate)
	resolver, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	put(t, resolver, "nameserver "+resolveAddress+"\nsearch evil.example\n") // a search domain must never be used
	put(t, hosts, "127.0.0.1 localhost\n")
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link add pfar0 type veth peer name pfar1 netns %[1]d
ip addr add %[2]s/24 dev pfar0
ip addr add 10.77.0.1/24 dev pfar0
ip link set pfar0 up
inside() { nsenter --net=/proc/%[1]d/ns/net "$@"; }
inside ip link set lo up
for a in %[3]s %[4]s 10.77.0.5 %[5]s; do inside ip addr add $a/24 dev pfar1; done
inside ip link set pfar1 up
mount --bind %[6]s "$(readlink -f /etc/resolv.conf)"
mount --bind %[7]s /etc/hosts
exec "$@"`, in.pid, ourAddress, hostAddress, evilAddress, resolveAddress, resolver, hosts)
	return in, []string{"unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, "sh"}
}

// seen returns what the internet has seen so far. An event takes no longer than its connection to arrive.
func (in *world) seen() (all []internet.Event) {
	for {
		select {
		case e := <-in.events:
			all = append(all, e)
		case <-time.After(200 * time.Millisecond):
			return all
		}
	}
}

// startPostgres runs a PostgreSQL of Debian's where the internet is; user "pfar" has the password "open sesame".
func (in *world) startPostgres(t *testing.T) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Fatal("PostgreSQL is not installed (tests/setup.sh postgres)")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir := directory(t, "")
	data, password := filepath.Join(dir, "data"), filepath.Join(dir, "password")
	put(t, password, "open sesame\n")
	const uid = 65534 // nobody: PostgreSQL refuses root, and users without a name
	check(t, os.Mkdir(data, 0o700))
	for _, path := range []string{dir, data, password} {
		check(t, os.Chown(path, uid, uid))
	}
	as := func(args ...string) *exec.Cmd {
		c := exec.Command(args[0], args[1:]...)
		c.Dir, c.Env = dir, []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return c
	}
	if out, err := as(filepath.Join(bin, "initdb"), "-D", data, "-U", "pfar", "--pwfile", password, "-A", "scram-sha-256", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	key := filepath.Join(data, "server.pem")
	makeCertificates(t, filepath.Join(dir, "db-ca.pem"), key, "db.allowed.example")
	check(t, os.Chown(key, uid, uid))
	check(t, os.Chmod(key, 0o600))
	f, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	fmt.Fprintf(f, "host all all %s/32 scram-sha-256\n", ourAddress)
	check(t, f.Close())
	c := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", in.pid), fmt.Sprintf("--setuid=%d", uid), fmt.Sprintf("--setgid=%d", uid),
		filepath.Join(bin, "postgres"), "-D", data, "-h", hostAddress, "-k", dir, "-c", "fsync=off", "-c", "ssl=on", "-c", "ssl_cert_file="+key, "-c", "ssl_key_file="+key)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := &output{}
	c.Stdout, c.Stderr = log, log
	check(t, c.Start())
	t.Cleanup(func() {
		syscall.Kill(c.Process.Pid, syscall.SIGQUIT) // at once, with all its processes
		c.Wait()
	})
	for deadline := time.Now().Add(soon); !strings.Contains(log.String(), "ready to accept connections"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("PostgreSQL does not start: %s", log)
		}
	}
}
