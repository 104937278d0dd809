package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// rawClient is the cheapest client that there is, so that what is measured is the gateway.
type rawClient struct {
	conn net.Conn
	r    *bufio.Reader
	head string
	buf  []byte
}

func dial(b testing.TB, addr, head string) *rawClient {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return &rawClient{conn: c, r: bufio.NewReaderSize(c, 64<<10), head: "POST /mcp HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + head}
}

// post returns the answer's body, which the next post overwrites.
func (c *rawClient) post(b testing.TB, body []byte) []byte {
	c.buf = append(c.buf[:0], c.head...)
	c.buf = append(c.buf, "Content-Length: "...)
	c.buf = strconv.AppendInt(c.buf, int64(len(body)), 10)
	c.buf = append(append(c.buf, "\r\n\r\n"...), body...)
	if _, err := c.conn.Write(c.buf); err != nil {
		b.Fatal(err)
	}
	length := -1
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if length < 0 {
		b.Fatal("an answer without its length")
	}
	c.buf = append(c.buf[:0], make([]byte, length)...)
	if _, err := io.ReadFull(c.r, c.buf); err != nil {
		b.Fatal(err)
	}
	return c.buf
}

// echo answers calls over pipes as an honest, quick server.
func echo(in io.Reader, out io.Writer) {
	r := bufio.NewReaderSize(in, 128<<10)
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			return
		}
		if m.ID != nil {
			result := []byte(`{}`)
			switch m.Method {
			case "initialize":
				result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`)
			case "tools/list":
				result = []byte(`{"tools":[` + registrytest.Echo + `]}`)
			case "tools/call":
				params, _ := jsonrpc.Object(m.Params, nil)
				arguments, _ := jsonrpc.Object(params.Get("arguments"), nil)
				result = append(append([]byte(`{"content":[{"type":"text","text":`), arguments.Get("message")...), `}]}`...)
			}
			answer := append(jsonrpc.AppendHead(nil, m.ID, "result"), result...)
			if _, err := out.Write(append(answer, "}\n"...)); err != nil {
				return
			}
		}
		line = line[:0]
	}
}

func echoPipes(b testing.TB) (stdin, stdout *os.File) {
	r1, w1, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		echo(r1, w2)
		r1.Close()
		w2.Close()
	}()
	return w1, r2
}

// floor is the thinnest gateway that is one: net/http, fresh ids, no checks.
type floor struct {
	in      *os.File
	mu      sync.Mutex
	last    int
	waiting map[int]chan json.RawMessage
}

func newFloor(in, out *os.File) *floor {
	f := &floor{in: in, waiting: make(map[int]chan json.RawMessage)}
	go func() {
		r := bufio.NewReaderSize(out, 128<<10)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m struct {
				ID     int
				Result json.RawMessage
			}
			if json.Unmarshal(line, &m) != nil {
				continue
			}
			f.mu.Lock()
			ch := f.waiting[m.ID]
			delete(f.waiting, m.ID)
			f.mu.Unlock()
			ch <- m.Result
		}
	}()
	return f
}

func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil {
		return
	}
	ch := make(chan json.RawMessage, 1)
	f.mu.Lock()
	f.last++
	id := f.last
	f.waiting[id] = ch
	_, err = fmt.Fprintf(f.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, m.Method, m.Params)
	f.mu.Unlock()
	if err != nil {
		return
	}
	result := <-ch
	answer := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer)
}

// paths are the ways whose cost is compared: each gives a client for one connection.
func paths(b *testing.B) map[string]func() (*rawClient, string) {
	stdin, stdout := echoPipes(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	h := &http.Server{Handler: newFloor(stdin, stdout)}
	go h.Serve(l)
	g := start(b, DefaultLimits())
	in, out := echoPipes(b)
	g.Hand(b, handover.Server{Name: "s"}, in, out).Ready(b)
	s := g.session(b, "/mcp")
	b.Cleanup(func() { h.Close(); stdin.Close() })
	return map[string]func() (*rawClient, string){
		"floor": func() (*rawClient, string) { return dial(b, l.Addr().String(), ""), "echo" },
		"pfar": func() (*rawClient, string) {
			return dial(b, g.addr, "Authorization: Bearer "+token+"\r\nMcp-Session-Id: "+s.id+"\r\nMcp-Protocol-Version: 2025-11-25\r\n"), "s__echo"
		},
	}
}

func callBody(id int, tool, message string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"message":%q}}}`, id, tool, message)
}

// BenchmarkCall is one call after another, floor and pfar in turn.
func BenchmarkCall(b *testing.B) {
	all := paths(b)
	for _, size := range []int{16, 64 << 10} {
		message := strings.Repeat("x", size)
		for _, name := range []string{"floor", "pfar", "floor", "pfar"} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				c, tool := all[name]()
				body := callBody(1, tool, message)
				b.ReportAllocs()
				for b.Loop() {
					if got := c.post(b, body); !bytes.Contains(got, []byte(`"content":[{"type":"text"`)) {
						b.Fatalf("got %s", got)
					}
				}
			})
		}
	}
}

// BenchmarkParallel is 16 connections at once.
func BenchmarkParallel(b *testing.B) {
	all := paths(b)
	for _, name := range []string{"floor", "pfar", "floor", "pfar"} {
		b.Run(name, func(b *testing.B) {
			var next sync.Mutex
			id := 0
			b.SetParallelism(8)
			b.RunParallel(func(p *testing.PB) {
				next.Lock()
				id += 1_000_000
				n := id
				c, tool := all[name]()
				next.Unlock()
				for p.Next() {
					n++
					want := strconv.Itoa(n)
					if got := c.post(b, callBody(n, tool, want)); !bytes.Contains(got, []byte(`"text":"`+want+`"`)) {
						b.Errorf("got %s, want %s", got, want)
						return
					}
				}
			})
		})
	}
}

// BenchmarkList is tools/list of many tools, beside a handler that answers the same bytes without a look.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{100, 1000} {
		var tools []string
		for i := range n {
			tools = append(tools, fmt.Sprintf(`{"name":"dummy-%04d","description":"does nothing, at some length, so that a list of many is as large as a real one","inputSchema":{"type":"object","properties":{"a":{"type":"string","description":"first"},"b":{"type":"integer","description":"second"}},"required":["a"]}}`, i))
		}
		g := start(b, DefaultLimits())
		g.Launch(b, handover.Server{Name: "s"}, registrytest.Script{Lists: map[string]string{"tools/list": `{"tools":[` + strings.Join(tools, ",") + `]}`}}).Ready(b)
		s := g.session(b, "/mcp")
		c := dial(b, g.addr, "Authorization: Bearer "+token+"\r\nMcp-Session-Id: "+s.id+"\r\n")
		body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		answer := bytes.Clone(c.post(b, body))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			_, _ = w.Write(answer)
		})}
		go h.Serve(l)
		b.Cleanup(func() { h.Close() })
		static := dial(b, l.Addr().String(), "")
		for _, w := range []struct {
			name string
			c    *rawClient
		}{{"static", static}, {"pfar", c}, {"static", static}, {"pfar", c}} {
			b.Run(fmt.Sprintf("%s/%d", w.name, n), func(b *testing.B) {
				b.SetBytes(int64(len(answer)))
				for b.Loop() {
					if got := w.c.post(b, body); len(got) != len(answer) {
						b.Fatalf("%d bytes, want %d", len(got), len(answer))
					}
				}
			})
		}
	}
}
