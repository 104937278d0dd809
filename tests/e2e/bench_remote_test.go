package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

const (
	benchHost  = "mcp.bench.example"
	benchCalls = 200
	benchDelay = 20 * time.Millisecond
	benchQuiet = 150 * time.Millisecond // that pfard waits for the end of an edit (cmd/pfard/watch)
)

// direct is how long a call takes that no pfar stands before: to a tool that answers at once, or after benchDelay.
type direct struct{ Now, Late time.Duration }

// serveBench is a remote server with the tools now and late. It first says how long direct calls over TLS take.
func serveBench(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("lo: %w: %s", err, out)
	}
	l, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- http.Serve(l, http.HandlerFunc(answerBench)) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // itself
	call := func(tool string) (time.Duration, error) {
		var took []time.Duration
		for i := range benchCalls {
			begin := time.Now()
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, i, tool)
			r, err := client.Post("https://127.0.0.1/mcp", "application/json", bytes.NewReader([]byte(body)))
			if err != nil {
				return 0, err
			}
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took[len(took)/2], nil
	}
	fmt.Println("ready")
	var d direct
	if d.Now, err = call("now"); err == nil {
		d.Late, err = call("late")
	}
	if err != nil {
		return err
	}
	json.NewEncoder(os.Stdout).Encode(d)
	return <-served
}

func answerBench(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{"content":[{"type":"text","text":"done"}]}`
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`
	case "tools/list":
		const tool = `{"name":%q,"description":"%[1]s","inputSchema":{"type":"object"}}`
		result = fmt.Sprintf(`{"tools":[`+tool+`,`+tool+`]}`, "now", "late")
	case "tools/call":
		if m.Params.Name == "late" {
			time.Sleep(benchDelay)
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// BenchmarkRemote is what pfar adds to a remote server: to a call, to the first list of its tools, and in memory.
func BenchmarkRemote(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("NOT RUN as an ordinary user: another network takes root")
	}
	said, wrap := startStandIn[direct](b, "bench", []string{benchHost})
	without := <-said
	const declared = "transport = \"stream-http\"\nurl = \"https://" + benchHost + "/mcp\"\n" + trust.Honest
	p := prepare(b, nil)
	p.up(wrap...)
	client := control.Client{Path: filepath.Join(p.run, "control.sock")}
	starts := func(prefix string, declare func(name string)) (took []time.Duration) {
		for i := range 9 {
			name := fmt.Sprint(prefix, i)
			mark, begin := p.mark(), time.Now()
			declare(name)
			p.awaitFrom(mark, name, soon, inState(name, control.Running))
			took = append(took, time.Since(begin))
			if name != "bench0" {
				check(b, os.Remove(p.path(name+".hcl")))
				p.await(name+" gone", soon, func(r control.Report) bool { return server(r, name).Name == "" })
			}
		}
		return took
	}
	edited := starts("bench", func(name string) {
		put(b, p.path(name+".tmp"), declared)
		check(b, os.Rename(p.path(name+".tmp"), p.path(name+".hcl")))
	})
	added := starts("added", func(name string) { // as pfar add and pfar edit do it
		text := &control.Text{New: []byte(declared)}
		_, err := client.Do(b.Context(), control.Request{Verb: control.Declare, Server: name, Text: text})
		check(b, err)
	})
	b.Run("tools", func(b *testing.B) { limited(b, benchQuiet+100*time.Millisecond, 0, edited) })
	b.Run("tools/added", func(b *testing.B) { limited(b, 100*time.Millisecond, 0, added) })
	c := p.client("/mcp")
	for _, tool := range []struct {
		name    string
		without time.Duration
		most    float64 // times without
	}{{"late", without.Late, 1.1}, {"now", without.Now, 0}} {
		b.Run("call/"+tool.name, func(b *testing.B) {
			var took []time.Duration
			for range benchCalls {
				begin := time.Now()
				c.must("bench0__"+tool.name, map[string]any{})
				took = append(took, time.Since(begin))
			}
			limited(b, 0, 0, took)
			factor := float64(took[len(took)/2]) / float64(tool.without)
			b.ReportMetric(factor, "times")
			if tool.most > 0 && factor > tool.most {
				b.Errorf("%.2f times a direct call of %s, over the limit of %.1f", factor, tool.without, tool.most)
			}
		})
	}
	b.Run("memory", func(b *testing.B) {
		bytes := 0
		for _, one := range descendants(p.cmd.Process.Pid) {
			if one.name == "pfar-adapter" || one.name == "pfar-egress" {
				bytes += pss(b, one.pid)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(bytes)/1e6, "MB")
		if bytes == 0 || bytes > 20e6 {
			b.Errorf("adapter and bridge have %d bytes, over the limit of 20 MB", bytes)
		}
	})
}
