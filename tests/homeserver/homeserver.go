// Package homeserver starts a Matrix homeserver, Dendrite, for tests: on loopback, with its files in a directory of the
// test. Its program is built from the Go module in tests/matrix.
package homeserver

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Variable names the directory with the homeserver's programs; make test-matrix sets it.
const Variable = "PFAR_TEST_MATRIX"

// Server is a homeserver that runs.
type Server struct {
	URL string // its base address
	Dir string // all its files

	programs string
	address  string
	secret   string // by which accounts are made
	process  *exec.Cmd
	ended    chan error
}

// Name is the server's name, the part of accounts behind the colon.
const Name = "home.test"

// Start returns a homeserver that answers. It ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	programs := os.Getenv(Variable)
	if programs == "" {
		t.Skipf("NOT RUN: %s is not set; make test-matrix builds the homeserver", Variable)
	}
	s := &Server{Dir: t.TempDir(), programs: programs, secret: word()}
	key := filepath.Join(s.Dir, "matrix_key.pem")
	keys := exec.Command(filepath.Join(programs, "generate-keys"), "-private-key", key)
	if out, err := keys.CombinedOutput(); err != nil {
		t.Fatalf("making the homeserver's key: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "dendrite.yaml"), []byte(s.config()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.kill() })
	s.Begin(t)
	return s
}

// config is that of a server that knows no other one. Each component has its database, and the queue lies in a folder.
func (s *Server) config() string {
	database := func(name string) string {
		return fmt.Sprintf("  database: {connection_string: %q}\n", "file:"+filepath.Join(s.Dir, name+".db"))
	}
	return fmt.Sprintf(`version: 2
global:
  server_name: %s
  private_key: %s
  disable_federation: true
  presence: {enable_inbound: false, enable_outbound: false}
  jetstream: {storage_path: %s}
  cache: {max_size_estimated: 32mb}
client_api:
  registration_disabled: true
  registration_shared_secret: %q
  rate_limiting: {enabled: false}
logging: [{type: std, level: warn}]
room_server:
%sfederation_api:
%skey_server:
%smedia_api:
  base_path: %s
%smscs:
%srelay_api:
%ssync_api:
%suser_api:
  bcrypt_cost: 4
  account_database: {connection_string: %q}
`, Name, filepath.Join(s.Dir, "matrix_key.pem"), s.Queue(), s.secret, database("room"), database("federation"),
		database("key"), filepath.Join(s.Dir, "media"), database("media"), database("mscs"), database("relay"),
		database("sync"), "file:"+filepath.Join(s.Dir, "user.db"))
}

// Queue is the folder of the server's message queue.
func (s *Server) Queue() string { return filepath.Join(s.Dir, "queue") }

// Begin starts the server, the first time or again after End, and returns when it answers.
func (s *Server) Begin(t testing.TB) {
	t.Helper()
	const tries = 20 // each at another port: some other program may have it
	for n := 1; ; n++ {
		fresh := s.address == ""
		if fresh {
			s.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+mathrand.IntN(ports)))
			s.URL = "http://" + s.address
		}
		err := s.try()
		switch {
		case err == nil:
			return
		case !fresh || n == tries || !strings.Contains(err.Error(), "address already in use"):
			t.Fatal(err)
		}
		s.address = ""
	}
}

// Ports of homeservers. The kernel gives none of them to a connection that names no port (ip(7), ip_local_port_range),
// so a server finds its port free when it comes back.
const (
	firstPort = 21000
	ports     = 11000
)

// try starts the server at its address.
func (s *Server) try() error {
	s.process = exec.Command(filepath.Join(s.programs, "dendrite"), "-config", filepath.Join(s.Dir, "dendrite.yaml"),
		"-http-bind-address", s.address)
	s.process.Dir = s.Dir
	name := filepath.Join(s.Dir, "log")
	log, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.process = nil
		return fmt.Errorf("starting the homeserver: %w", err)
	}
	s.ended = make(chan error, 1)
	go func(p *exec.Cmd, ended chan<- error) { ended <- p.Wait() }(s.process, s.ended)
	for { // it has no other sign that it is ready
		resp, err := http.Get(s.URL + "/_matrix/client/versions")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.ended:
			s.process = nil
			text, _ := os.ReadFile(name)
			return fmt.Errorf("the homeserver has ended: %w\n%s", err, text[begin:])
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// End stops the server in order, and returns when it has ended.
func (s *Server) End(t testing.TB) {
	t.Helper()
	if err := s.process.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	s.process = nil
}

func (s *Server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		<-s.ended
	}
}

// Person is one account, by its access token.
type Person struct {
	ID, Token string
	url       string
}

// Register makes an account.
func (s *Server) Register(t testing.TB, name string) Person {
	t.Helper()
	p := Person{url: s.URL}
	var nonce struct{ Nonce string }
	p.Do(t, http.MethodGet, "/_synapse/admin/v1/register", nil, &nonce)
	password := word()
	mac := hmac.New(sha1.New, []byte(s.secret))
	mac.Write([]byte(strings.Join([]string{nonce.Nonce, name, password, "notadmin"}, "\x00")))
	var made struct {
		User  string `json:"user_id"`
		Token string `json:"access_token"`
	}
	p.Do(t, http.MethodPost, "/_synapse/admin/v1/register", map[string]any{
		"nonce": nonce.Nonce, "username": name, "password": password, "admin": false,
		"mac": hex.EncodeToString(mac.Sum(nil)),
	}, &made)
	p.ID, p.Token = made.User, made.Token
	return p
}

// Try asks the homeserver and returns its answer, whatever it is. body nil is none.
func (p Person) Try(t testing.TB, method, path string, body any) (status int, answer []byte) {
	t.Helper()
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, p.url+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, answer
}

// Do asks the homeserver, and reads the answer into a value. Any status but 200 ends the test.
func (p Person) Do(t testing.TB, method, path string, body, into any) {
	t.Helper()
	status, answer := p.Try(t, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, answer)
		}
	}
}

// Room makes a direct room with somebody else, as programs for chats do. options are added to the request.
func (p Person) Room(t testing.TB, with string, options map[string]any) (room string) {
	t.Helper()
	body := map[string]any{"preset": "trusted_private_chat", "is_direct": true, "invite": []string{with}}
	for key, value := range options {
		body[key] = value
	}
	var made struct {
		Room string `json:"room_id"`
	}
	p.Do(t, http.MethodPost, "/_matrix/client/v3/createRoom", body, &made)
	return made.Room
}

// Say sends a text, and returns the message's id.
func (p Person) Say(t testing.TB, room, text string) string {
	t.Helper()
	return p.Event(t, room, "m.room.message", map[string]any{"msgtype": "m.text", "body": text})
}

// Event sends an event, and returns its id.
func (p Person) Event(t testing.TB, room, kind string, content any) string {
	t.Helper()
	var sent struct {
		ID string `json:"event_id"`
	}
	p.Do(t, http.MethodPut, p.At(room, "send/"+kind+"/"+word()), content, &sent)
	return sent.ID
}

// At is the path of something below a room.
func (p Person) At(room, rest string) string {
	return "/_matrix/client/v3/rooms/" + url.PathEscape(room) + "/" + rest
}

// Event is one of a room.
type Event struct {
	ID      string `json:"event_id"`
	Kind    string `json:"type"`
	Sender  string `json:"sender"`
	Content struct {
		Body string `json:"body"`
	} `json:"content"`
}

// Await returns the first message of somebody's in a room whose text has these words in it. It fails when the test's
// time is over.
func (p Person) Await(t testing.TB, room, from, words string) Event {
	t.Helper()
	since := ""
	for {
		for _, e := range p.History(t, room) {
			if e.Kind == "m.room.message" && e.Sender == from && strings.Contains(e.Content.Body, words) {
				return e
			}
		}
		var news struct {
			Next string `json:"next_batch"`
		}
		p.Do(t, http.MethodGet, "/_matrix/client/v3/sync?timeout=10000&since="+url.QueryEscape(since), nil, &news)
		since = news.Next
	}
}

// History returns what a room shows to a person, the oldest first.
func (p Person) History(t testing.TB, room string) (list []Event) {
	t.Helper()
	var got struct{ Chunk []Event }
	p.Do(t, http.MethodGet, p.At(room, "messages?dir=b&limit=200"), nil, &got)
	for i := range got.Chunk {
		list = append(list, got.Chunk[len(got.Chunk)-1-i])
	}
	return list
}

func word() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
