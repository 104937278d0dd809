// Package internet stands in for the internet in tests: it answers names, HTTP, and lines on sockets, and tells of
// whatever reaches it.
package internet

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/net/websocket"
)

// The internet's stand-in is in a namespace of its own, at the far end of a veth pair. Its addresses look public, for
// the bridge refuses all others.
const (
	Ours       = "93.184.215.13" // at the near end
	Host       = "93.184.215.14" // of the names below allowed.example and wild.example
	Evil       = "93.184.215.66"
	Private    = "10.77.0.5"
	NameServer = "93.184.215.53"
	Metadata   = "169.254.169.254"
)

// zone is what the internet's name server knows.
func zone() map[string]string {
	return map[string]string{
		"api.allowed.example.": Host, "db.allowed.example.": Host, "a.wild.example.": Host, "wild.example.": Evil,
		"evil.example.": Evil, "lan.example.": Private, "secret-lan.example.": Private, "rebound.example.": "127.0.0.1", "own.example.": Ours,
		"meta.example.": Metadata,
	}
}

// Event is what the internet sees, a line each: a query, or a connection.
type Event struct {
	Query string `json:"query,omitempty"`
	To    string `json:"to,omitempty"` // address and port that were connected to
}

// Serve is the other side of everything: HTTP on 80 and 443, an echo of lines on 7777 and with TLS on 8443, and the
// name server. All of it answers on all addresses. certificate is the path of one with its key; "": nothing speaks TLS.
// It writes "ready", and then an Event a line.
func Serve(certificate string) error {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(e)
	}
	mux := http.NewServeMux()
	mux.Handle("/ws", websocket.Server{Handler: func(c *websocket.Conn) { io.Copy(c, c) }})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s", r.Host) })
	serve := map[string]func(net.Listener){
		":80":   func(l net.Listener) { http.Serve(l, mux) },
		":7777": echoLines,
		":22":   echoLines,
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, certificate)
		if err != nil {
			return err
		}
		secure := &tls.Config{Certificates: []tls.Certificate{pair}}
		serve[":443"] = func(l net.Listener) { http.Serve(tls.NewListener(l, secure), mux) }
		serve[":8443"] = func(l net.Listener) { echoLines(tls.NewListener(l, secure)) }
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

func answerName(w dns.ResponseWriter, q *dns.Msg, tell func(Event)) {
	r := new(dns.Msg).SetReply(q)
	for _, question := range q.Question {
		tell(Event{Query: question.Name})
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
	tell func(Event)
}

func (l *toldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.tell(Event{To: c.LocalAddr().String()})
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
