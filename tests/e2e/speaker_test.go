package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// The clients here look at bytes: they are to see what a library hides.

// spoken is an answer and what came before it.
type spoken struct {
	member   string // "result" or "error"
	value    []byte
	progress [][]byte // parameters of the notifications
}

// speaker is a client of one generation over one transport.
type speaker interface {
	// ask makes a request; all are raw JSON, and token is "" where no progress is wanted. subject is what the Mcp-Name
	// header says.
	ask(method, params, id, token, subject string) (spoken, error)
	modern() bool
}

const patience = soon

const helloLegacy = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`

// modernMeta is what 2026-07-28 has each request say.
const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

// envelope takes a message apart, which is an answer to the id and nothing else.
func envelope(message []byte, id string) (spoken, error) {
	list, err := membersOf(message)
	if err != nil {
		return spoken{}, err
	}
	if len(list) != 3 || string(member(message, "jsonrpc")) != `"2.0"` || string(member(message, "id")) != id {
		return spoken{}, fmt.Errorf("not an answer to %s: %.300q", id, message)
	}
	for _, name := range []string{"result", "error"} {
		if v := member(message, name); v != nil {
			return spoken{member: name, value: v}, nil
		}
	}
	return spoken{}, fmt.Errorf("no answer: %.300q", message)
}

// lines speaks over the stdio of a program: a server's, or that of pfar connect.
type lines struct {
	t     testing.TB
	young bool
	in    io.WriteCloser

	mu       sync.Mutex
	answers  map[string]chan []byte // by id
	progress map[string][][]byte    // by token
	ended    chan struct{}
}

// speak starts a program and greets it.
func speak(t testing.TB, young bool, env []string, program string, args ...string) *lines {
	t.Helper()
	c := exec.Command(program, args...)
	log := &output{}
	c.Env, c.Stderr = env, log
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &lines{t: t, young: young, in: in, answers: map[string]chan []byte{}, progress: map[string][][]byte{}, ended: make(chan struct{})}
	go s.read(out)
	t.Cleanup(func() {
		in.Close()
		select {
		case <-s.ended:
		case <-time.After(soon):
			t.Errorf("%s goes on after the end of stdin", program)
			c.Process.Kill()
		}
		c.Wait()
		if t.Failed() && log.String() != "" {
			t.Logf("%s %q wrote: %.2000s", program, args, log)
		}
	})
	if !young {
		if _, err := s.ask("initialize", helloLegacy, `"hello"`, "", ""); err != nil {
			t.Fatalf("greeting %s %q: %v\n%.2000s", program, args, err, log)
		}
		fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return s
}

func (s *lines) modern() bool { return s.young }

func (s *lines) read(r io.Reader) {
	defer close(s.ended)
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		line = line[:len(line)-1]
		s.mu.Lock()
		switch {
		case member(line, "method") == nil:
			if answer := s.answers[string(member(line, "id"))]; answer != nil {
				answer <- line
			}
		case string(member(line, "method")) == `"notifications/progress"`:
			params := member(line, "params")
			token := string(member(params, "progressToken"))
			s.progress[token] = append(s.progress[token], params)
		}
		s.mu.Unlock()
	}
}

func (s *lines) ask(method, params, id, token, _ string) (spoken, error) {
	answer := make(chan []byte, 1)
	s.mu.Lock()
	s.answers[id] = answer
	delete(s.progress, token)
	_, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", id, method, params)
	s.mu.Unlock()
	if err != nil {
		return spoken{}, err
	}
	select {
	case line := <-answer:
		a, err := envelope(line, id)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.answers, id)
		a.progress = s.progress[token]
		return a, err
	case <-s.ended:
		return spoken{}, errors.New("the program has ended")
	case <-time.After(patience):
		return spoken{}, fmt.Errorf("no answer to %s %s within %v", method, id, patience)
	}
}

// rawHTTP speaks to the gateway's endpoint over loopback or its socket.
type rawHTTP struct {
	young   bool
	http    *http.Client
	url     string
	token   string
	session string
}

// speakHTTP greets one of pfar's endpoints: "/mcp" or "/mcp/NAME".
func (p *pfar) speakHTTP(young bool, path string) *rawHTTP {
	p.t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 8, DialContext: (&net.Dialer{}).DialContext}
	p.t.Cleanup(transport.CloseIdleConnections)
	s := &rawHTTP{young: young, url: strings.TrimSuffix(p.last().Endpoint, "/mcp") + path, token: p.token(),
		http: &http.Client{Transport: transport, Timeout: patience}}
	if !young {
		if _, err := s.ask("initialize", helloLegacy, "1", "", ""); err != nil {
			p.t.Fatalf("greeting %s: %v", s.url, err)
		}
		resp, err := s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", "")
		if err != nil {
			p.t.Fatal(err)
		}
		resp.Body.Close()
	}
	return s
}

func (s *rawHTTP) modern() bool { return s.young }

func (s *rawHTTP) post(message, method, subject string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+s.token)
	if s.young {
		req.Header.Set("MCP-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", method)
		if subject != "" && method != "completion/complete" {
			req.Header.Set("Mcp-Name", headerValue(subject))
		}
	} else {
		req.Header.Set("MCP-Protocol-Version", "2025-11-25")
		if s.session != "" {
			req.Header.Set("Mcp-Session-Id", s.session)
		}
	}
	return s.http.Do(req)
}

// headerValue writes text as a header can hold it.
func headerValue(text string) string {
	if strings.Trim(text, " ") == text && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func (s *rawHTTP) ask(method, params, id, _, subject string) (spoken, error) {
	resp, err := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params), method, subject)
	if err != nil {
		return spoken{}, err
	}
	defer resp.Body.Close()
	if session := resp.Header.Get("Mcp-Session-Id"); session != "" && method == "initialize" {
		s.session = session
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return spoken{}, err
		}
		a, err := envelope(b, id)
		if err == nil && a.member == "result" && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("a result with %s", resp.Status)
		}
		return a, err
	}
	return readStream(resp.Body, id)
}

// readStream reads events until one is the answer.
func readStream(r io.Reader, id string) (spoken, error) {
	var a spoken
	var progress [][]byte
	var failed error
	err := events(r, func(data []byte) bool {
		if member(data, "method") == nil {
			a, failed = envelope(bytes.Clone(data), id)
			return true
		}
		progress = append(progress, bytes.Clone(member(data, "params")))
		return false
	})
	a.progress = progress
	return a, errors.Join(err, failed)
}

// generation finds out which generation pfar speaks to a server, as pfar does: the newer one, if the server knows it.
func generation(t testing.TB, env []string, program string, args ...string) (modern bool) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Env = env
	c.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` + modernMeta + `}}}` + "\n")
	out, err := c.Output()
	if err != nil && len(out) == 0 {
		return false // some servers end when they are asked before initialize
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	var r struct {
		Result struct {
			SupportedVersions []string `json:"supportedVersions"`
		} `json:"result"`
	}
	return json.Unmarshal(line, &r) == nil && strings.Contains(strings.Join(r.Result.SupportedVersions, " "), "2026-07-28")
}

// environment is what a server is run with outside of pfar.
func environment(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LANG=C.UTF-8"}, more...)
}
