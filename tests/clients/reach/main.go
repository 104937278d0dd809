// Command reach is an MCP server on stdio whose one tool reaches out as a Go program does, or through psql.
//
// What is asked for bare runs in a child without the proxy variables.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/stdio"
)

// unreachable is how long anything may take; nothing here may take so long.
const unreachable = 5 * time.Second

// request is what the tool is called with.
type request struct {
	Via        string `json:"via"`
	To         string `json:"to"` // URL, host:port, or a name
	Bare       bool   `json:"bare"`
	Host       string `json:"host"`       // field of HTTP
	ServerName string `json:"servername"` // of TLS
	Send       string `json:"send"`
	Options    string `json:"options"` // psql's connection string beside host and port
	Password   string `json:"password"`
}

// result is what the tool answers with, as JSON.
type result struct {
	Status int    `json:"status,omitempty"`
	Body   string `json:"body,omitempty"`
	Error  string `json:"error,omitempty"` // ENOTFOUND of a name, errno(3) of a system call, or the status of psql
	Text   string `json:"text,omitempty"`
	MS     int64  `json:"ms"`
}

func main() {
	worker := flag.Bool("worker", false, "answer lines with lines")
	deaf := flag.Bool("deaf", false, "go on after the end of stdin and after SIGTERM")
	flag.Parse()
	c := &client{}
	if *worker {
		c.serveLines(os.Stdin, os.Stdout)
		return
	}
	if *deaf {
		signal.Ignore(syscall.SIGTERM)
	}
	s := &stdio.Server{Name: "reach"}
	s.SetTools([]stdio.Tool{{Name: "reach", Description: "reaches out and says what came of it", Call: c.call}})
	if err := s.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reach:", err)
		os.Exit(1)
	}
	if *deaf {
		time.Sleep(time.Hour)
	}
}

// client keeps what it was told to hold.
type client struct {
	mu   sync.Mutex
	held []net.Conn
	bare *child
}

func (c *client) call(arguments json.RawMessage) (string, error) {
	var r request
	if err := json.Unmarshal(arguments, &r); err != nil {
		return "", err
	}
	if r.Bare {
		return c.callBare(arguments)
	}
	b, err := json.Marshal(c.reach(r))
	return string(b), err
}

func (c *client) reach(r request) result {
	ways := map[string]func(request) (result, error){
		"http": overHTTP, "dial": c.dial, "tls": c.dial, "hold": c.dial, "hold-tunnel": c.dial, "udp": overUDP, "lookup": lookup, "psql": psql,
	}
	way, ok := ways[r.Via]
	if !ok {
		return result{Error: "EINVAL", Text: fmt.Sprintf("no way %q", r.Via)}
	}
	began := time.Now()
	got, err := way(r)
	if err != nil {
		got.Error, got.Text = cmp.Or(got.Error, code(err)), err.Error()
	}
	got.MS = time.Since(began).Milliseconds()
	return got
}

// code is what other languages call an error.
func code(err error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.As(err, &dns) && dns.IsNotFound:
		return "ENOTFOUND"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "TIMEOUT"
	case errors.Is(err, io.EOF):
		return "EOF"
	}
	return "other"
}

// overHTTP uses the default transport, and so the proxy variables.
func overHTTP(r request) (result, error) {
	c := http.Client{Timeout: unreachable}
	req, err := http.NewRequest(http.MethodGet, r.To, nil)
	if err != nil {
		return result{}, err
	}
	req.Host = r.Host
	resp, err := c.Do(req)
	if err != nil {
		return result{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return result{Status: resp.StatusCode, Body: string(b)}, err
}

// dial opens a connection, sends something and returns what comes back, "hold" and "hold-tunnel" without closing it.
func (c *client) dial(r request) (result, error) {
	conn, err := connect(r)
	if err != nil {
		return result{}, err
	}
	if r.Via == "hold" || r.Via == "hold-tunnel" {
		c.mu.Lock()
		c.held = append(c.held, conn)
		c.mu.Unlock()
	} else {
		defer conn.Close()
	}
	if err := conn.SetDeadline(time.Now().Add(unreachable)); err != nil {
		return result{}, err
	}
	if _, err := io.WriteString(conn, cmp.Or(r.Send, "hello\n")); err != nil {
		return result{}, err
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	return result{Body: string(b[:n])}, err
}

func connect(r request) (net.Conn, error) {
	d := net.Dialer{Timeout: unreachable}
	switch r.Via {
	case "tls":
		host, _, err := net.SplitHostPort(r.To)
		if err != nil {
			return nil, err
		}
		return tls.DialWithDialer(&d, "tcp", r.To, &tls.Config{ServerName: cmp.Or(r.ServerName, host)})
	case "hold-tunnel":
		return tunnel(&d, r.To)
	}
	return d.Dial("tcp", r.To)
}

// tunnel asks the proxy of the environment for one.
func tunnel(d *net.Dialer, to string) (net.Conn, error) {
	u, err := url.Parse(os.Getenv("HTTPS_PROXY"))
	if err != nil {
		return nil, err
	}
	conn, err := d.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(unreachable)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(io.LimitReader(conn, 1<<10), 1<<10), &http.Request{Method: http.MethodConnect})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return conn, err
}

func overUDP(r request) (result, error) {
	b, err := base64.StdEncoding.DecodeString(r.Send)
	if err != nil {
		return result{}, err
	}
	conn, err := net.DialTimeout("udp", r.To, unreachable)
	if err != nil {
		return result{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(unreachable)); err != nil {
		return result{}, err
	}
	if _, err := conn.Write(b); err != nil {
		return result{}, err
	}
	n, err := conn.Read(make([]byte, 4096))
	return result{Body: fmt.Sprintf("%d octets", n)}, err
}

func lookup(r request) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), unreachable)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", r.To)
	if err != nil {
		return result{}, err
	}
	return result{Body: addrs[0].String()}, nil
}

// psql has PostgreSQL's own client ask a question.
func psql(r request) (result, error) {
	host, port, err := net.SplitHostPort(r.To)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*unreachable)
	defer cancel()
	c := exec.CommandContext(ctx, "/usr/bin/psql", "-X", "-A", "-t", "-w", "-c", "select 42", "-d", fmt.Sprintf("host=%s port=%s %s", host, port, r.Options))
	c.Env = append(os.Environ(), "PGPASSWORD="+r.Password)
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return result{Error: fmt.Sprint(c.ProcessState.ExitCode())}, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return result{Body: strings.TrimSpace(stdout.String())}, nil
}

// child is a process like this one without the proxy variables. It answers a line with a line.
type child struct {
	in  io.Writer
	out *bufio.Reader
}

func (c *client) callBare(arguments json.RawMessage) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bare == nil {
		var err error
		if c.bare, err = startChild(); err != nil {
			return "", err
		}
	}
	if _, err := c.bare.in.Write(append(arguments, '\n')); err != nil {
		return "", err
	}
	return c.bare.out.ReadString('\n')
}

func startChild() (*child, error) {
	cmd := exec.Command("/proc/self/exe", "-worker")
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return &child{in, bufio.NewReader(out)}, cmd.Start()
}

func (c *client) serveLines(in io.Reader, out io.Writer) {
	answers := json.NewEncoder(out)
	for d := json.NewDecoder(in); ; {
		var r request
		if d.Decode(&r) != nil || answers.Encode(c.reach(r)) != nil {
			return
		}
	}
}
