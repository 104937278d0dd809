package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/miekg/dns"
)

// world is an internet of two addresses, in a network namespace behind a cable.
const world = `ip netns add world
ip link add cable type veth peer name eth0 netns world
ip addr add 93.184.215.1/24 dev cable
ip link set cable up
ip -n world addr add 93.184.215.14/24 dev eth0
ip -n world addr add 93.184.215.15/24 dev eth0
ip -n world link set eth0 up
ip -n world link set lo up
echo '93.184.215.14 declared.test
93.184.215.15 other.test' >>/etc/hosts
systemd-run --quiet --unit=world --property=NetworkNamespacePath=/run/netns/world "$PWD/payload" serve
`

const (
	declaredAddress = "93.184.215.14:8080"
	otherAddress    = "93.184.215.15:8080"
)

// serve is the world's web server: on every address the same.
func serve([]string) error {
	return http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "reached as", r.Host)
	}))
}

// fetch prints what a URL has. Names are looked up where servers look them up, and not in /etc/hosts.
func fetch(args []string) error {
	if len(args) != 1 {
		return errors.New("want a URL")
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err == nil && net.ParseIP(host) == nil {
			host, err = lookup(host)
		}
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(host, port))
	}}}
	r, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w: %s", r.Status, err, b)
	}
	_, err = os.Stdout.Write(b)
	return err
}

// timedOut reports whether fetch was left without an answer until the kernel gave up.
func timedOut(said string) bool {
	return strings.Contains(said, "timed out") || strings.Contains(said, "timeout")
}

// lookup asks the resolver of a server's namespace.
func lookup(name string) (string, error) {
	var query dns.Msg
	query.SetQuestion(name+".", dns.TypeA)
	answer, _, err := (&dns.Client{Timeout: soon}).Exchange(&query, "127.0.0.1:53")
	if err != nil {
		return "", err
	}
	for _, r := range answer.Answer {
		if a, ok := r.(*dns.A); ok {
			return a.A.String(), nil
		}
	}
	return "", fmt.Errorf("looking up %s: %s", name, dns.RcodeToString[answer.Rcode])
}

// declaredOnly asks from inside the server's network namespace, whose ruleset sends programs to the bridge.
func declaredOnly() (string, error) {
	inside := func(url string) (string, error) {
		return output("nsenter", "--net", "--target="+show("pfar-mcp@out", "MainPID"), "./payload", "fetch", url)
	}
	for _, url := range []string{"http://" + declaredAddress, "http://" + otherAddress} {
		if out, err := output("./payload", "fetch", url); err != nil {
			return "", fmt.Errorf("the host itself does not reach %s: %w: %s", url, err, out)
		}
	}
	for _, url := range []string{"http://other.test:8080", "http://" + declaredAddress, "http://" + otherAddress, "http://declared.test:80"} {
		if out, err := inside(url); err == nil || timedOut(out) {
			return "", fmt.Errorf("it reaches %s, or nobody tells it that it does not: %s, %w", url, out, err)
		}
	}
	out, err := inside("http://declared.test:8080")
	if err != nil {
		return "", fmt.Errorf("it does not reach what is declared: %w: %s", err, out)
	}
	s, err := server("out")
	return s.LastRefusal, errors.Join(err, contains(out, "reached as declared.test:8080"), contains(s.LastRefusal, "refused"))
}

// bridgeHeld puts a program into the bridge's own cgroup, as one would be that has taken the bridge over.
func bridgeHeld() (string, error) {
	cgroup := show("pfar-egress@out", "ControlGroup")
	taken := func(address string) (string, error) {
		return output("sh", "-euc", `echo $$ >"/sys/fs/cgroup$1/cgroup.procs"; exec ./payload fetch "http://$2"`, "sh", cgroup, address)
	}
	out, err := taken(declaredAddress) // declaredOnly has had it allowed, for a while
	if err != nil {
		return "", fmt.Errorf("the bridge does not reach what is declared: %w: %s", err, out)
	}
	out, err = taken(otherAddress)
	if err == nil || timedOut(out) || !strings.Contains(out, "connect: ") {
		return "", fmt.Errorf("of what is not declared: %w: %s", err, out)
	}
	refused := strings.TrimSpace(out)
	out, err = output("./payload", "fetch", "http://"+otherAddress)
	if err != nil {
		return "", fmt.Errorf("others are held as well: %w: %s", err, out)
	}
	table, err := output("nft", "list", "table", "inet", "pfar")
	return refused, errors.Join(err, contains(table, "93.184.215.14", "pfar-egress.slice"))
}
