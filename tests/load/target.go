package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// target answers HTTPS on 443, as many zeros as the path says, sends zeros without end on the plain port, and is its
// own name server. It says "ready" when it listens.
func target(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	secure, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true})
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", ":"+plainPort)
	if err != nil {
		return err
	}
	go sendZeros(plain)
	names, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return err
	}
	go func() { _ = (&dns.Server{PacketConn: names, Handler: dns.HandlerFunc(name)}).ActivateAndServe() }()
	fmt.Println("ready")
	return http.Serve(secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil {
			_, _ = io.CopyN(w, zeros{}, int64(n))
		}
	}))
}

// name answers that Host is the address that was asked.
func name(w dns.ResponseWriter, q *dns.Msg) {
	r := new(dns.Msg).SetReply(q)
	if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA && strings.EqualFold(q.Question[0].Name, Host+".") {
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
		r.Answer = []dns.RR{&dns.A{Hdr: h, A: net.ParseIP(TargetAddress)}}
	}
	_ = w.WriteMsg(r)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func sendZeros(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for b := make([]byte, 1<<20); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

// proxy answers CONNECT and copies, and checks nothing: what no proxy can be faster than by much.
func proxy(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go tunnel(c)
	}
}

func tunnel(c net.Conn) {
	defer c.Close()
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return
	}
	f := strings.Fields(string(b[:n]))
	if len(f) < 2 || f[0] != "CONNECT" {
		return
	}
	up, err := net.Dial("tcp", f[1])
	if err != nil {
		return
	}
	defer up.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(up, c)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
	_ = c.(*net.TCPConn).CloseWrite()
	<-done
}
