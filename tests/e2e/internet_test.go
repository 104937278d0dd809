package e2e

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/websocket"
)

// The internet's stand-in is in a namespace of its own, at the far end of a veth pair. Its addresses look public, for
// the bridge refuses all others.
const (
	hostAddress    = "93.184.215.14" // of the names below allowed.example and wild.example
	evilAddress    = "93.184.215.66"
	lanAddress     = "10.77.0.5"
	resolveAddress = "93.184.215.53"
)

// zone is what the internet's name server knows.
func zone() map[string]string {
	return map[string]string{
		"api.allowed.example.": hostAddress, "db.allowed.example.": hostAddress, "a.wild.example.": hostAddress, "wild.example.": evilAddress,
		"evil.example.": evilAddress, "lan.example.": lanAddress, "secret-lan.example.": lanAddress, "rebound.example.": "127.0.0.1", "own.example.": ourAddress,
	}
}

// event is what the internet sees, a line each: a query, or a connection.
type event struct {
	Query string `json:"query,omitempty"`
	To    string `json:"to,omitempty"` // address and port that were connected to
}

// serveInternet is the other side of everything: HTTP on 80 and 443, an echo of lines on 7777 and with TLS on 8443, and
// the name server. All of it answers on all addresses.
func serveInternet(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	secure := &tls.Config{Certificates: []tls.Certificate{pair}}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(e)
	}
	mux := http.NewServeMux()
	mux.Handle("/ws", websocket.Server{Handler: func(c *websocket.Conn) { io.Copy(c, c) }})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s", r.Host) })
	serve := map[string]func(net.Listener){
		":80":   func(l net.Listener) { http.Serve(l, mux) },
		":443":  func(l net.Listener) { http.Serve(tls.NewListener(l, secure), mux) },
		":7777": echoLines,
		":8443": func(l net.Listener) { echoLines(tls.NewListener(l, secure)) },
		":22":   echoLines,
	}
	for address, f := range serve {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go f(&toldListener{l, tell})
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { answerName(w, q, tell) })
	for _, network := range []string{"udp", "tcp"} {
		go (&dns.Server{Addr: ":53", Net: network, Handler: answer}).ListenAndServe()
	}
	fmt.Println("ready")
	select {}
}

func answerName(w dns.ResponseWriter, q *dns.Msg, tell func(event)) {
	r := new(dns.Msg).SetReply(q)
	for _, question := range q.Question {
		tell(event{Query: question.Name})
		address, known := zone()[strings.ToLower(question.Name)]
		if !known {
			r.Rcode = dns.RcodeNameError
		} else if question.Qtype == dns.TypeA {
			h := dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
			r.Answer = append(r.Answer, &dns.A{Hdr: h, A: net.ParseIP(address)})
		}
	}
	w.WriteMsg(r)
}

type toldListener struct {
	net.Listener
	tell func(event)
}

func (l *toldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.tell(event{To: c.LocalAddr().String()})
	}
	return c, err
}

func echoLines(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			lines := bufio.NewReader(c)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				fmt.Fprintf(c, "echo of %s", line)
			}
		}()
	}
}

// internet is the stand-in, and what it has seen.
type internet struct {
	pid       int
	authority string // certificate of the authority that its certificates are by
	events    <-chan event
}

// startInternet starts it. wrap is for pfar.up: a network whose only way out leads to it.
func startInternet(t *testing.T) (in *internet, wrap []string) {
	t.Helper()
	dir := directory(t, "")
	in = &internet{authority: filepath.Join(dir, "ca.pem")}
	certificate := filepath.Join(dir, "server.pem")
	makeCertificates(t, in.authority, certificate, "api.allowed.example", "*.wild.example", "evil.example", "wild.example")
	in.pid, in.events = startRole[event](t, "internet", certificate)
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
func (in *internet) seen() (all []event) {
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
func (in *internet) startPostgres(t *testing.T) {
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
