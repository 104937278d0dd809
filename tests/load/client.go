package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// Job is what a client is to do with Host.
type Job struct {
	Kind  string `json:"kind"` // new, kept, bulk, plain, many
	N     int    `json:"n"`    // connections, requests or bytes
	Proxy string `json:"proxy,omitempty"`
}

// Host is the target's name; the plain port sends zeros without end.
const (
	Host          = "load.example"
	TargetAddress = "93.184.215.14"
	plainPort     = "7000"
)

// Took is what came of it: of new and kept, a time for each; of the others the time for all. In nanoseconds.
type Took []time.Duration

func do(j Job, authority string) (string, error) {
	c, err := newClient(j, authority)
	if err != nil {
		return "", err
	}
	defer c.http.CloseIdleConnections() // the server in the sandbox lives on
	var took Took
	switch j.Kind {
	case "new":
		took, err = c.requests(j.N, false)
	case "kept":
		took, err = c.requests(j.N, true)
	case "bulk":
		took, err = c.bulk(j.N)
	case "plain":
		took, err = c.plain(j.N)
	case "many":
		took, err = c.many(j.N)
	default:
		err = fmt.Errorf("no job %q", j.Kind)
	}
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(took)
	return string(b), err
}

type client struct {
	http  *http.Client
	dial  net.Dialer
	proxy string
}

func newClient(j Job, authority string) (*client, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%q holds no certificate", authority)
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 1}
	if j.Proxy != "" {
		u, err := url.Parse("http://" + j.Proxy)
		if err != nil {
			return nil, err
		}
		t.Proxy = http.ProxyURL(u)
	}
	return &client{http: &http.Client{Transport: t, Timeout: time.Minute}, proxy: j.Proxy}, nil
}

// requests makes n of them, each on a connection of its own unless kept.
func (c *client) requests(n int, kept bool) (Took, error) {
	if kept { // the first one makes the connection
		if err := c.get("/", 0); err != nil {
			return nil, err
		}
	}
	var took Took
	for range n {
		begin := time.Now()
		if err := c.get("/", 0); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
		if !kept {
			c.http.CloseIdleConnections()
		}
	}
	return took, nil
}

func (c *client) bulk(bytes int) (Took, error) {
	begin := time.Now()
	if err := c.get(fmt.Sprintf("/%d", bytes), bytes); err != nil {
		return nil, err
	}
	return Took{time.Since(begin)}, nil
}

func (c *client) get(path string, want int) error {
	resp, err := c.http.Get("https://" + Host + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || int(n) < want) {
		err = fmt.Errorf("%s, %d bytes", resp.Status, n)
	}
	return err
}

// plain receives n bytes without TLS.
func (c *client) plain(n int) (Took, error) {
	conn, err := c.connect(plainPort)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	begin := time.Now()
	b := make([]byte, 1<<20)
	for got := 0; got < n; {
		m, err := conn.Read(b)
		if err != nil {
			return nil, err
		}
		got += m
	}
	return Took{time.Since(begin)}, nil
}

// connect opens a connection to the target, through the proxy if there is one.
func (c *client) connect(port string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	to := net.JoinHostPort(Host, port)
	if c.proxy == "" {
		return c.dial.DialContext(ctx, "tcp", to)
	}
	conn, err := c.dial.DialContext(ctx, "tcp", c.proxy)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	for last := [4]byte{}; last != [4]byte{'\r', '\n', '\r', '\n'}; {
		if _, err := io.ReadFull(conn, last[3:]); err != nil {
			conn.Close()
			return nil, err
		}
		if last != [4]byte{'\r', '\n', '\r', '\n'} {
			copy(last[:], last[1:])
		}
	}
	return conn, nil
}

// many holds n TLS connections open at once and makes a request on each.
func (c *client) many(n int) (Took, error) {
	config := c.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = Host
	begin := time.Now()
	conns := make([]*tls.Conn, n)
	errs := make([]error, n)
	parallel(n, func(i int) {
		var raw net.Conn
		if raw, errs[i] = c.connect("443"); errs[i] == nil {
			conns[i] = tls.Client(raw, config)
			errs[i] = conns[i].Handshake()
		}
	})
	parallel(n, func(i int) {
		if errs[i] == nil {
			errs[i] = request(conns[i])
		}
	})
	took := time.Since(begin)
	for i, conn := range conns {
		if errs[i] != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i, n, errs[i])
		}
		conn.Close()
	}
	return Took{took}, nil
}

// parallel does it for 0 to n-1, 64 at a time.
func parallel(n int, f func(int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}

func request(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", Host); err != nil {
		return err
	}
	b := make([]byte, 12)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if string(b) != "HTTP/1.1 200" {
		return fmt.Errorf("the target says %q", b)
	}
	return nil
}
